import { setImmediate } from 'node:timers/promises'
import { type JsonObject, memberOf } from '#attestation/json/value.ts'
import { refusalOf } from './record-content.ts'
import { dialectOf } from './record-text.ts'
import type { RecordFilters, RecordsStore, StoredRecord } from './records-store.ts'

/**
 * One page of a search examines at most this many records, and at most SEARCHED_LENGTH_MAX
 * characters.
 */
export const SEARCHED_RECORDS_MAX = 500
export const SEARCHED_LENGTH_MAX = 16 * 1024 * 1024

/** Records are held in memory before their size is known, so few are read at a time. */
const SLICE = 10

type Found = {
  readonly records: readonly StoredRecord[]
  readonly hasMore: boolean
  /** The page must end at this cursor. Absent when the page may continue. */
  readonly endsAt?: string | null
}

/**
 * Finds an account's records that contain `text`, newest first, without regard to case. This
 * process examines each record, because stored content may be encrypted. A page ends when enough
 * records were examined, and the next page continues there.
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
      // Other requests can run between slices.
      await setImmediate()
    }
  }
}

/**
 * Searches messages and answers, but not names of members or settings. A record with altered bytes
 * counts as found, so that the caller reads the record and gets the fault. Throws
 * ContentUnavailable when the key is missing, because most other records need this key too.
 */
function hasText(record: StoredRecord, wanted: string): boolean {
  const { request, response, withheld } = record
  if (withheld?.kind === 'unavailable') {
    if (withheld.code === 'content_key_missing') throw refusalOf(withheld)
    return true
  }
  if (request === null || response === null) return false
  const { readRequest } = dialectOf(record)
  const body: JsonObject = readRequest(JSON.parse(request)).body
  const answer: JsonObject = JSON.parse(response)
  return (
    SAID.some((name) => holds(memberOf(body, name), wanted)) ||
    ANSWERED.some((name) => holds(memberOf(answer, name), wanted))
  )
}

/** These members contain the conversation, in any dialect. */
const SAID = ['messages', 'system', 'input', 'instructions']
const ANSWERED = ['choices', 'content', 'output']

function holds(value: unknown, wanted: string): boolean {
  if (typeof value === 'string') return value.toLowerCase().includes(wanted)
  if (typeof value !== 'object' || value === null) return false
  return Object.values(value).some((member) => holds(member, wanted))
}
