import { recordText } from './record-text.ts'
import type { StoredRecord } from './records-store.ts'

/** A page's records end before their text grows over this, whatever the limit: one record may be over 40 MiB. */
export const PAGE_LENGTH_MAX = 32 * 1024 * 1024

/** Records that are read before anything is known of their size. */
export const FIRST_SLICE = 10

/** Records that are read at once, at most. */
export const SLICE_MAX = 250

/** JSON texts of a page's records, and the cursor of the last of them when there may be more, else null. */
export type RecordTexts<Cursor> = { readonly texts: readonly string[]; readonly cursor: Cursor | null }

/**
 * Fills a page of at most `limit` records from `cursor` on (null: the beginning), slice by slice, so that not many more
 * are held than fit. `read` gives up to `limit` records that follow a cursor; what it throws passes through.
 */
export async function fillPage<Cursor>(options: {
  readonly limit: number
  readonly cursor: Cursor | null
  readonly cursorOf: (record: StoredRecord) => Cursor
  readonly read: (
    after: Cursor | null,
    limit: number,
  ) => Promise<{ readonly records: readonly StoredRecord[]; readonly hasMore: boolean }>
}): Promise<RecordTexts<Cursor>> {
  const texts: string[] = []
  let length = 0
  let { cursor } = options
  while (true) {
    const limit = sliceLimit({ left: options.limit - texts.length, count: texts.length, length })
    const { records, hasMore } = await options.read(cursor, limit)
    for (const record of records) {
      const text = recordText(record)
      if (texts.length > 0 && length + text.length > PAGE_LENGTH_MAX) return { texts, cursor }
      texts.push(text)
      length += text.length
      cursor = options.cursorOf(record)
    }
    if (!hasMore) return { texts, cursor: null }
    if (texts.length >= options.limit) return { texts, cursor }
  }
}

/** How many records to read next, so that as many as still fit are held, judging by the size of those before. */
function sliceLimit(so: { readonly left: number; readonly count: number; readonly length: number }): number {
  if (so.count === 0) return Math.min(so.left, FIRST_SLICE)
  const fitting = Math.floor((PAGE_LENGTH_MAX - so.length) / (so.length / so.count))
  return Math.min(so.left, SLICE_MAX, Math.max(1, fitting))
}
