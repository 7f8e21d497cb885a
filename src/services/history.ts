import { ApiError, ValidationError } from '../errors.ts'
import type { RecordsStore } from '../stores/records.ts'
import { recordText } from './record-text.ts'

/** A page's records end before their text grows over this, whatever the limit: one record may be over 40 MiB. */
export const PAGE_LENGTH_MAX = 32 * 1024 * 1024

/** Records that are read before anything is known of their size. */
export const FIRST_SLICE = 10

/** Records that are read at once, at most. */
export const SLICE_MAX = 250

export type HistoryPageQuery = {
  /** Who asks. */
  readonly accountId: string
  readonly filter: 'all' | 'mine'
  readonly limit: number
  readonly cursor: string | null
}

/** The stored completions, as JSON texts of the interface (2.4). */
export type History = {
  /**
   * A page, newest first: `completions`, and `cursor`, the id of the last of them when there may be more, else null.
   * Throws ApiError `history_restricted`, ValidationError for a cursor that is no record of the list.
   */
  list(query: HistoryPageQuery): Promise<string>
  /** The first record with this hash that the account may see, or null. */
  find(hash: string, accountId: string): Promise<string | null>
}

/**
 * History over the records store. `isOpen`: every account may see everybody's completions (`filter=all`, and lookups
 * by hash), as the interface has it; otherwise each sees its own.
 */
export function createHistory(options: {
  readonly records: Pick<RecordsStore, 'list' | 'findByHash'>
  readonly isOpen: boolean
}): History {
  const { records, isOpen } = options

  async function list(query: HistoryPageQuery): Promise<string> {
    if (query.filter === 'all' && !isOpen)
      throw new ApiError('history_restricted', 'This service shows each account its own completions only')
    const accountId = query.filter === 'all' ? null : query.accountId
    const texts: string[] = []
    let length = 0
    let cursor = query.cursor
    while (true) {
      const limit = sliceLimit({ left: query.limit - texts.length, count: texts.length, length })
      const page = await records.list({ accountId, limit, cursor })
      if (page === 'unknown_cursor') throw unknownCursor()
      for (const record of page.records) {
        const text = recordText(record)
        if (texts.length > 0 && length + text.length > PAGE_LENGTH_MAX) return pageText(texts, cursor)
        texts.push(text)
        length += text.length
        cursor = record.id
      }
      if (page.cursor === null) return pageText(texts, null)
      if (texts.length >= query.limit) return pageText(texts, cursor)
    }
  }

  async function find(hash: string, accountId: string): Promise<string | null> {
    const record = await records.findByHash(hash, { accountId: isOpen ? null : accountId })
    return record && recordText(record)
  }

  return { list, find }
}

/** How many records to read next, so that as many as still fit are held, judging by the size of those before. */
function sliceLimit(so: { readonly left: number; readonly count: number; readonly length: number }): number {
  if (so.count === 0) return Math.min(so.left, FIRST_SLICE)
  const fitting = Math.floor((PAGE_LENGTH_MAX - so.length) / (so.length / so.count))
  return Math.min(so.left, SLICE_MAX, Math.max(1, fitting))
}

function pageText(texts: readonly string[], cursor: string | null): string {
  return `{"completions":[${texts.join()}],"cursor":${JSON.stringify(cursor)}}`
}

function unknownCursor(): ValidationError {
  const msg = 'Input should be the cursor of a page of this list'
  return new ValidationError([{ loc: ['query', 'cursor'], msg, type: 'value_error' }])
}
