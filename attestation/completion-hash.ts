import { concatBytes, encodeHex, encodeUtf8, sha256 } from './bytes.ts'
import { canonicalizeJson } from './json/canonical.ts'
import {
  filterMembers,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from './json/value.ts'

/**
 * Members that hold the proof of a completion. They are not hashed. A provider's members with these
 * names are not sent to callers.
 */
export const PROOF_MEMBERS = [
  'hash',
  'public_key',
  'signature',
  'tx_hash',
  'attestation',
  'receipt',
  'log',
] as const

/** The hashes of one completion (hex, no prefix) and the hashed texts. */
export type CompletionHash = {
  /** SHA-256 of canonicalRequest. */
  readonly requestHash: string
  /** SHA-256 of canonicalResponse. */
  readonly responseHash: string
  /** SHA-256 of the 64 bytes of requestHash and responseHash: the record's `hash`. */
  readonly hash: string
  readonly canonicalRequest: string
  readonly canonicalResponse: string
}

/**
 * Hashes a completion (formats.md, Hash of a completion). Takes the request's digest and canonical
 * text, and the response without its proof (Dialect.hashedResponse). `digest` computes SHA-256: the
 * enclave passes a native function. Throws JsonError as canonicalizeJson does. A hash does not show
 * who made it: see verifyCompletionSignature.
 */
export function hashResponse(
  completion: {
    readonly canonicalRequest: string
    readonly requestDigest: Uint8Array
    readonly response: JsonObject
  },
  digest: (data: Uint8Array) => Uint8Array = sha256,
): CompletionHash {
  const { canonicalRequest, requestDigest, response } = completion
  const canonicalResponse = canonicalizeJson(response)
  const responseDigest = digest(encodeUtf8(canonicalResponse))
  return {
    requestHash: encodeHex(requestDigest),
    responseHash: encodeHex(responseDigest),
    hash: encodeHex(digest(concatBytes(requestDigest, responseDigest))),
    canonicalRequest,
    canonicalResponse,
  }
}

export function asksForUsage(request: JsonObject): boolean {
  const options = memberOf(request, 'stream_options')
  return isJsonObject(options) && memberOf(options, 'include_usage') === true
}

/**
 * The request without null members at its top level and at the top level of each message. Returns
 * `request` itself if it has no such member.
 */
export function stripUnsetMembers(request: JsonObject): JsonObject {
  const { messages } = request
  if (!isJsonArray(messages)) return withoutNulls(request)
  const stripped = messages.map(
    (message): Json => (isJsonObject(message) ? withoutNulls(message) : message),
  )
  const isSame = stripped.every((message, index) => message === messages[index])
  return withoutNulls(isSame ? request : { ...request, messages: stripped })
}

/** The response without proof members. Returns `response` itself if it has no such member. */
export function stripProofMembers(response: JsonObject): JsonObject {
  if (!PROOF_MEMBERS.some((name) => Object.hasOwn(response, name))) return response
  return filterMembers(response, (name) => !isProofMember(name))
}

export function isProofMember(name: string): boolean {
  return PROOF_NAMES.has(name)
}

const PROOF_NAMES: ReadonlySet<string> = new Set(PROOF_MEMBERS)

function withoutNulls(object: JsonObject): JsonObject {
  return Object.values(object).includes(null)
    ? filterMembers(object, (_, value) => value !== null)
    : object
}
