import { concatBytes, encodeHex, encodeUtf8, sha256 } from './bytes.ts'
import { canonicalizeJson } from './json/canonical.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, setMember } from './json/value.ts'

/**
 * Members that stand beside a completion's own in what a caller is given. They are about the completion, so they
 * are no part of what is hashed; a provider's members of these names never reach a caller.
 */
export const PROOF_MEMBERS = ['hash', 'public_key', 'signature', 'tx_hash', 'attestation', 'receipt'] as const

/** The hashes of one completion (hex, no prefix) and the texts they are over. */
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
 * Hashes a completion (README.md of this folder, Hash of a completion). Unset members of the request and the proof members of the
 * response are left out here, so that a caller's body, its stored echo, a create response and a stored response all
 * give the same hash. `digest` is SHA-256; the enclave passes a native one. Throws JsonError as canonicalizeJson.
 *
 * A hash says nothing about who made it: see verifyCompletionSignature.
 */
export function hashCompletion(
  completion: { readonly request: JsonObject; readonly response: JsonObject },
  digest: (data: Uint8Array) => Uint8Array = sha256,
): CompletionHash {
  const canonicalRequest = canonicalizeJson(stripUnsetMembers(completion.request))
  const canonicalResponse = canonicalizeJson(stripProofMembers(completion.response))
  const requestDigest = digest(encodeUtf8(canonicalRequest))
  const responseDigest = digest(encodeUtf8(canonicalResponse))
  return {
    requestHash: encodeHex(requestDigest),
    responseHash: encodeHex(responseDigest),
    hash: encodeHex(digest(concatBytes(requestDigest, responseDigest))),
    canonicalRequest,
    canonicalResponse,
  }
}

/**
 * The request without the members that are null, at its top level and at the top level of each message; null
 * anywhere deeper stays. Gives `request` itself when there is nothing to leave out.
 */
export function stripUnsetMembers(request: JsonObject): JsonObject {
  const { messages } = request
  if (!isJsonArray(messages)) return withoutNulls(request)
  const stripped = messages.map((message): Json => (isJsonObject(message) ? withoutNulls(message) : message))
  const isSame = stripped.every((message, index) => message === messages[index])
  return withoutNulls(isSame ? request : { ...request, messages: stripped })
}

/** The response without the members of PROOF_MEMBERS. Gives `response` itself when it has none. */
export function stripProofMembers(response: JsonObject): JsonObject {
  if (!PROOF_MEMBERS.some((name) => Object.hasOwn(response, name))) return response
  return filterMembers(response, (name) => !isProofMember(name))
}

/** Whether `name` is one of PROOF_MEMBERS. */
export function isProofMember(name: string): boolean {
  return PROOF_NAMES.has(name)
}

const PROOF_NAMES: ReadonlySet<string> = new Set(PROOF_MEMBERS)

function withoutNulls(object: JsonObject): JsonObject {
  return Object.values(object).includes(null) ? filterMembers(object, (_, value) => value !== null) : object
}

function filterMembers(object: JsonObject, keeps: (name: string, value: Json) => boolean): JsonObject {
  const kept: Record<string, Json> = {}
  for (const [name, value] of Object.entries(object)) if (keeps(name, value)) setMember(kept, name, value)
  return kept
}
