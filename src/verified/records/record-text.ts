import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../../../attestation/json/value.ts'
import { CHAT_MEMBERS } from '../../nodes/protocol/known-members.ts'
import { CONTENT_FAULTS } from '../../storage/errors.ts'
import { refusalOf, type Withheld } from './record-content.ts'
import type { AnsweredRecord, StoredRecord } from './records-store.ts'

/*
 * JSON texts of records, spliced and not serialised: the response stands in them byte for byte as
 * it was hashed, and a 32 MiB answer is not parsed to be sent. The spliced values are hex, base64
 * and canonical JSON that the committer verified, so none of them needs an escape.
 */

/**
 * Create response (interface, 2.3): the response with the proof members after its own, `receipt`
 * and `log` too.
 */
export function createReplyText(record: AnsweredRecord): string {
  return withMembers(responseOf(record), `${proofText(record)},${logMember(record)}`)
}

/**
 * The response of a call that is not encrypted: answers are made here of those alone. Throws
 * ApiError `content_erased` and ContentUnavailable.
 */
export function responseOf({ response, withheld }: AnsweredRecord): string {
  if (withheld !== undefined) throw refusalOf(withheld)
  if (response === null) throw new TypeError('expected the record of a call that is not encrypted')
  return response
}

/** The last chunk of a stream (canonical JSON text) with the same members after its own. */
export function lastChunkText(chunk: string, record: AnsweredRecord): string {
  return withMembers(chunk, `${proofText(record)},${logMember(record)}`)
}

/**
 * Stored record (interface, 2.4), with `receipt` and `log`, and `reanchored` when its head was
 * anchored again. That of an encrypted call is `redacted`, and so is one whose content was `erased`
 * or is `withheld`.
 */
export function recordText(record: StoredRecord): string {
  const { id, createdAt } = record
  const again =
    record.reanchored.length === 0 ? '' : `"reanchored":${JSON.stringify(record.reanchored)},`
  return `{"id":"${id}",${contentText(record)},${proofText(record)},${again}"created_at":${createdAt},${logMember(record)}}`
}

/**
 * Request and response; of an encrypted call, that they are not here, and what was used; of others
 * without them, why.
 */
function contentText({ request, response, usage, withheld }: StoredRecord): string {
  if (request === null || response === null)
    return `"request":null,"response":null,"redacted":true,"usage":${JSON.stringify(usage)}${withheld === undefined ? '' : withheldMember(withheld)}`
  return `"request":${JSON.stringify(echoRequest(request))},"response":${response}`
}

function withheldMember(withheld: Withheld): string {
  if (withheld.kind === 'erased') {
    const { at, by, reason } = withheld
    return `,"erased":${JSON.stringify({ at, by, reason })}`
  }
  const { code } = withheld
  return `,"withheld":${JSON.stringify({ code, message: CONTENT_FAULTS[code] })}`
}

/**
 * A chunk of its own for the proof, with empty choices, for streams of enclaves of protocol version
 * 1, which do not hold the last chunk back. Its `usage` is null as in all chunks; left out for a
 * caller who asked for usage, whose SDK would take the null over the usage that came before.
 */
export function proofChunkText(
  record: AnsweredRecord,
  { includesUsage }: { readonly includesUsage: boolean },
): string {
  const { id, created, model } = JSON.parse(responseOf(record)) as Readonly<Record<string, unknown>>
  const head = {
    id,
    object: 'chat.completion.chunk',
    created,
    model,
    choices: [],
    ...(includesUsage ? {} : { usage: null }),
  }
  return lastChunkText(JSON.stringify(head), record)
}

function withMembers(object: string, members: string): string {
  return object === '{}' ? `{${members}}` : `${object.slice(0, -1)},${members}}`
}

function proofText(record: AnsweredRecord): string {
  const { hash, publicKey, signature, txHash, attestation, receipt } = record
  const fields = `"hash":"${hash}","public_key":"${publicKey}","signature":"${signature}","tx_hash":"${txHash}"`
  return `${fields},"attestation":"${attestation}","receipt":${receipt}`
}

function logMember({ logProof }: AnsweredRecord): string {
  const { size, root, signature, path, chainId, contract } = logProof
  return `"log":${JSON.stringify({ size, root, signature, path, chain_id: chainId, contract })}`
}

/**
 * Members of a stored request that are shown as null when they were not set (interface, 2.4), in
 * this order.
 */
export const ECHOED_MEMBERS = CHAT_MEMBERS

/** The same for each of its messages. */
const ECHOED_MESSAGE_MEMBERS = ['content', 'function_call', 'role', 'name'] as const

/**
 * The request as a record shows it, from its canonical text: every member of the interface, null
 * where it was not set, then the other members that the caller sent. It hashes to the same value,
 * because hashing leaves those nulls out.
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

/** Object spread makes an own member also of one that is called `__proto__`. */
function withNulls(object: JsonObject, names: readonly string[]): JsonObject {
  const nulls = Object.fromEntries(names.map((name) => [name, null]))
  return { ...nulls, ...object }
}

/**
 * A page's records end before their text grows over this, also below the limit: one record may be
 * over 40 MiB.
 */
export const PAGE_LENGTH_MAX = 32 * 1024 * 1024

/** Records that are read before anything is known of their size. */
export const FIRST_SLICE = 10

/** Records that are read at once, at most. */
export const SLICE_MAX = 250

/**
 * JSON texts of a page's records, and the cursor of the last of them when there may be more, else
 * null.
 */
type RecordTexts<Cursor> = { readonly texts: readonly string[]; readonly cursor: Cursor | null }

/**
 * Fills a page of at most `limit` records from `cursor` on (null: the beginning), slice by slice,
 * so that not many more are held than fit. `read` gives up to `limit` records that follow a cursor,
 * and where the page has to end with them, if it has; what it throws passes through.
 */
export async function fillPage<Cursor>(options: {
  readonly limit: number
  readonly cursor: Cursor | null
  readonly cursorOf: (record: StoredRecord) => Cursor
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
  while (true) {
    const limit = sliceLimit({ left: options.limit - texts.length, count: texts.length, length })
    const { records, hasMore, endsAt } = await options.read(cursor, limit)
    for (const record of records) {
      const text = recordText(record)
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

/**
 * How many records to read next, so that as many as still fit are held, judging by the size of
 * those before.
 */
function sliceLimit(parts: {
  readonly left: number
  readonly count: number
  readonly length: number
}): number {
  if (parts.count === 0) return Math.min(parts.left, FIRST_SLICE)
  const fitting = Math.floor((PAGE_LENGTH_MAX - parts.length) / (parts.length / parts.count))
  return Math.min(parts.left, SLICE_MAX, Math.max(1, fitting))
}
