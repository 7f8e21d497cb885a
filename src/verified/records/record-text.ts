import { dialectNamed } from '#attestation/dialects/dialect-names.ts'
import { DIALECTS, type Dialect } from '#attestation/dialects/dialects.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { CHAT_MEMBERS } from '../../nodes/protocol/known-members.ts'
import { CONTENT_FAULTS } from '../../storage/errors.ts'
import { refusalOf, type Withheld } from './record-content.ts'
import type { AnsweredRecord, StoredRecord } from './records-store.ts'

/**
 * JSON texts are joined here as strings. So the response keeps the bytes that were hashed, and a 32
 * MiB answer is not parsed. No string needs escapes, because each is hex, base64 or canonical JSON
 * that the committer checked.
 */

/** The reply to a call (interface, 2.3). The dialect decides where in the response the proof is. */
export function createReplyText(record: AnsweredRecord): string {
  return dialectOf(record).addProof(responseOf(record), proofMembers(record))
}

/** The end of a stream. `last` is the canonical JSON of the last event's data. */
export function streamEndText(last: string, record: AnsweredRecord): string {
  return dialectOf(record).endStream(last, proofMembers(record))
}

export function dialectOf({ receipt }: Pick<AnsweredRecord, 'receipt'>): Dialect {
  const { dialect } = JSON.parse(receipt) as { readonly dialect?: unknown }
  return DIALECTS[dialectNamed(dialect)]
}

/** Throws ApiError `content_erased` and ContentUnavailable, and TypeError for an encrypted call. */
export function responseOf({ response, withheld }: AnsweredRecord): string {
  if (withheld !== undefined) throw refusalOf(withheld)
  if (response === null) throw new TypeError('expected the record of a call that is not encrypted')
  return response
}

/** `chunk` is the last chunk of a chat's stream, in canonical JSON. */
export function lastChunkText(chunk: string, record: AnsweredRecord): string {
  return DIALECTS.chat.addProof(chunk, proofMembers(record))
}

/**
 * Returns a stored record as JSON (interface, 2.4). It has `reanchored` if its head was anchored
 * again. It has `redacted` if the call was encrypted, or if the content is `erased` or `withheld`.
 */
export function recordText(record: StoredRecord): string {
  const { id, createdAt } = record
  const again =
    record.reanchored.length === 0 ? '' : `"reanchored":${JSON.stringify(record.reanchored)},`
  const facts = `${contentText(record)},${proofText(record)},${again}"created_at":${createdAt}`
  return `{"id":"${id}",${facts},${logMember(record)}}`
}

/** As recordText, with the record's dialect as its first member. */
export function dialectRecordText(record: StoredRecord): string {
  return `{"dialect":"${dialectOf(record).name}",${recordText(record).slice(1)}`
}

/**
 * Returns request and response. If they are missing, returns the reason, and an encrypted call's
 * usage.
 */
function contentText(record: StoredRecord): string {
  const { request, response, usage, withheld } = record
  if (request === null || response === null)
    return (
      `"request":null,"response":null,"redacted":true,"usage":${JSON.stringify(usage)}` +
      (withheld === undefined ? '' : withheldMember(withheld))
    )
  const isChat = dialectOf(record).name === 'chat'
  const echo = isChat ? JSON.stringify(echoRequest(request)) : request
  return `"request":${echo},"response":${response}`
}

function withheldMember(withheld: Withheld): string {
  if (withheld.kind === 'erased') {
    const { at, by, reason } = withheld
    return `,"erased":${JSON.stringify({ at, by, reason })}`
  }
  const { code } = withheld
  return `,"withheld":${JSON.stringify({ code, message: CONTENT_FAULTS[code] })}`
}

function proofMembers(record: AnsweredRecord): string {
  return `${proofText(record)},${logMember(record)}`
}

function proofText(record: AnsweredRecord): string {
  const { hash, publicKey, signature, txHash, attestation, receipt } = record
  const signed = `"hash":"${hash}","public_key":"${publicKey}","signature":"${signature}"`
  return `${signed},"tx_hash":"${txHash}","attestation":"${attestation}","receipt":${receipt}`
}

function logMember({ logProof }: AnsweredRecord): string {
  const { size, root, signature, path, chainId, contract } = logProof
  return `"log":${JSON.stringify({ size, root, signature, path, chain_id: chainId, contract })}`
}

/** Members of a request, in the order of a record. Missing members become null (interface, 2.4). */
export const ECHOED_MEMBERS = CHAT_MEMBERS

/** Missing members become null. */
const ECHOED_MESSAGE_MEMBERS = ['content', 'function_call', 'role', 'name'] as const

/**
 * Returns the request as a record shows it: all members of the interface (null if not set), then
 * the caller's other members. The request's hash stays the same, because hashing leaves out nulls.
 */
export function echoRequest(canonicalRequest: string): JsonObject {
  const request: JsonObject = JSON.parse(canonicalRequest)
  const { messages } = request
  const echo = withNulls(request, ECHOED_MEMBERS)
  return isJsonArray(messages) ? { ...echo, messages: messages.map(echoMessage) } : echo
}

function echoMessage(message: Json): Json {
  return isJsonObject(message) ? withNulls(message, ECHOED_MESSAGE_MEMBERS) : message
}

/** Object spread copies `__proto__` as an ordinary member. */
function withNulls(object: JsonObject, names: readonly string[]): JsonObject {
  const nulls = Object.fromEntries(names.map((name) => [name, null]))
  return { ...nulls, ...object }
}

/** Maximum characters of a page with several records. A single record may have over 40 MiB. */
export const PAGE_LENGTH_MAX = 32 * 1024 * 1024

/** The first read of a page is small, because the size of the records is unknown. */
export const FIRST_SLICE = 10

/** At most this many records are read at once. */
export const SLICE_MAX = 250

/** `cursor` is the cursor of the last record. Null at the end. */
type RecordTexts<Cursor> = { readonly texts: readonly string[]; readonly cursor: Cursor | null }

/**
 * Fills a page with at most `limit` records after `cursor` (null: from the beginning). Reads in
 * slices, so that only few records in memory do not fit on the page. `read` returns `endsAt` if the
 * page must end at this cursor. Throws the errors of `read`.
 */
export async function fillPage<Cursor>(options: {
  readonly limit: number
  readonly cursor: Cursor | null
  readonly cursorOf: (record: StoredRecord) => Cursor
  /** Default: recordText. */
  readonly textOf?: (record: StoredRecord) => string
  readonly read: (
    after: Cursor | null,
    limit: number,
  ) => Promise<{
    readonly records: readonly StoredRecord[]
    readonly hasMore: boolean
    readonly endsAt?: Cursor | null
  }>
}): Promise<RecordTexts<Cursor>> {
  const texts: string[] = []
  let length = 0
  let { cursor } = options
  const { textOf = recordText } = options
  while (true) {
    const limit = sliceLimit({ left: options.limit - texts.length, count: texts.length, length })
    const { records, hasMore, endsAt } = await options.read(cursor, limit)
    for (const record of records) {
      const text = textOf(record)
      if (texts.length > 0 && length + text.length > PAGE_LENGTH_MAX) return { texts, cursor }
      texts.push(text)
      length += text.length
      cursor = options.cursorOf(record)
    }
    if (!hasMore) return { texts, cursor: null }
    if (endsAt !== undefined) return { texts, cursor: endsAt }
    if (texts.length >= options.limit) return { texts, cursor }
  }
}

/** Returns how many more records fit if they have the average length of the earlier records. */
function sliceLimit(parts: {
  readonly left: number
  readonly count: number
  readonly length: number
}): number {
  if (parts.count === 0) return Math.min(parts.left, FIRST_SLICE)
  const fitting = Math.floor((PAGE_LENGTH_MAX - parts.length) / (parts.length / parts.count))
  return Math.min(parts.left, SLICE_MAX, Math.max(1, fitting))
}
