import { ApiError, ValidationError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { fillPage, recordText } from './record-text.ts'
import type { RecordsStore } from './records-store.ts'
import { scopeOfViewer, type Viewer } from './viewer.ts'

type HistoryPageQuery = {
  readonly viewer: Viewer
  readonly filter: 'all' | 'mine'
  readonly limit: number
  readonly cursor: string | null
}

/** The stored completions, as JSON texts of the interface (2.4). */
export type History = {
  /**
   * A page, newest first: `completions`, and `cursor`, the id of the last of them when there may be
   * more, else null. Throws ApiError `history_restricted`, ValidationError for a cursor that is no
   * record of the list.
   */
  list(query: HistoryPageQuery): Promise<string>
  /** The first record with this hash that the viewer may see, or null. */
  find(hash: string, viewer: Viewer): Promise<string | null>
}

/**
 * History over the records store. `isOpen`: every account may see everybody's completions
 * (`filter=all`, and lookups by hash), as the interface has it; otherwise each sees its own, but
 * for viewers who see all.
 */
export function createHistory(options: {
  readonly records: Pick<RecordsStore, 'list' | 'findByHash'>
  readonly isOpen: boolean
}): History {
  const { records, isOpen } = options

  async function list(query: HistoryPageQuery): Promise<string> {
    const { filter, viewer } = query
    if (filter === 'all' && scopeOfViewer(viewer, isOpen).accountId !== null)
      throw new ApiError(
        'history_restricted',
        'This service shows each account its own completions only',
      )
    const accountId = filter === 'all' ? null : viewer.accountId
    const { texts, cursor } = await fillPage({
      limit: query.limit,
      cursor: query.cursor,
      cursorOf: ({ id }) => id,
      read: async (after, limit) => {
        const page = await records.list({ accountId, limit, cursor: after })
        if (page === 'unknown_cursor') throw unknownCursor()
        return { records: page.records, hasMore: page.cursor !== null }
      },
    })
    return `{"completions":[${texts.join()}],"cursor":${JSON.stringify(cursor)}}`
  }

  async function find(hash: string, viewer: Viewer): Promise<string | null> {
    const record = await records.findByHash(hash, scopeOfViewer(viewer, isOpen))
    return record && recordText(record)
  }

  return { list, find }
}

function unknownCursor(): ValidationError {
  const msg = 'Input should be the cursor of a page of this list'
  return new ValidationError([{ loc: ['query', 'cursor'], msg, type: 'value_error' }])
}

/**
 * Warns when every account may read everybody's completions. Not in development: there all accounts
 * are one's own.
 */
export function warnOfOpenHistory(
  {
    isHistoryOpen,
    isProduction,
  }: { readonly isHistoryOpen: boolean; readonly isProduction: boolean },
  log: Pick<Logger, 'warn'>,
): void {
  if (isHistoryOpen && isProduction)
    log.warn({}, "HISTORY_ALL is true: every account reads everybody's prompts and answers")
}
