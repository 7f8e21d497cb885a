import { setImmediate } from 'node:timers/promises'
import { refusalOf } from './record-content.ts'
import type { RecordFilters, RecordsStore, StoredRecord } from './records-store.ts'

/** Records that one page of a search looks into, at most, and characters of them. */
export const SEARCHED_RECORDS_MAX = 500
export const SEARCHED_LENGTH_MAX = 16 * 1024 * 1024

/** Records that are read before anything is known of their size, and held at once. */
const SLICE = 10

/** What one reading of a page found. */
type Found = {
  readonly records: readonly StoredRecord[]
  readonly hasMore: boolean
  /** Where the page has to end, with what was found; absent when it may go on. */
  readonly endsAt?: string | null
}

/**
 * Gives what reads an account's records whose content has `text`, in upper or lower case: newest
 * first. Each is looked into in this process, since content may be encrypted where it is stored. A
 * page ends when enough was looked into, and the next goes on there.
 */
export function createContentSearch(
  records: Pick<RecordsStore, 'list'>,
  query: { readonly accountId: string; readonly filters: RecordFilters; readonly text: string },
): (cursor: string | null, limit: number) => Promise<Found | 'unknown_cursor'> {
  const { text, ...where } = query
  const wanted = text.toLowerCase()
  let searched = 0
  let length = 0

  return async (from, limit) => {
    const found: StoredRecord[] = []
    let cursor = from
    while (true) {
      const page = await records.list({ ...where, limit: SLICE, cursor })
      if (page === 'unknown_cursor') return page
      for (const record of page.records) {
        if (hasText(record, wanted)) found.push(record)
        if (found.length >= limit) return { records: found, hasMore: true }
        length += (record.request?.length ?? 0) + (record.response?.length ?? 0)
      }
      searched += Math.max(1, page.records.length)
      ;({ cursor } = page)
      if (cursor === null) return { records: found, hasMore: false }
      if (page.isCut || searched >= SEARCHED_RECORDS_MAX || length >= SEARCHED_LENGTH_MAX)
        return { records: found, hasMore: true, endsAt: cursor }
      // Others are served between slices.
      await setImmediate()
    }
  }
}

/**
 * Looks into the texts of messages, asked and answered; not into names of members, nor settings. A
 * record whose stored bytes were altered is given, since it may have the text; it says itself that
 * it cannot be read. Throws ContentUnavailable where the key is missing, as it will be of most.
 */
function hasText({ request, response, withheld }: StoredRecord, wanted: string): boolean {
  if (withheld?.kind === 'unavailable') {
    if (withheld.code === 'content_key_missing') throw refusalOf(withheld)
    return true
  }
  if (request === null || response === null) return false
  const { messages } = JSON.parse(request) as { messages?: unknown }
  const { choices } = JSON.parse(response) as { choices?: unknown }
  return holds(messages, wanted) || holds(choices, wanted)
}

function holds(value: unknown, wanted: string): boolean {
  if (typeof value === 'string') return value.toLowerCase().includes(wanted)
  if (typeof value !== 'object' || value === null) return false
  return Object.values(value).some((member) => holds(member, wanted))
}
