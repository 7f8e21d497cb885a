import { sha256 as nobleSha256 } from '@noble/hashes/sha2.js'
import { encodeHex, encodeUtf8, sha256 } from './bytes.ts'
import {
  type CompletionHash,
  hashResponse,
  type ReceiptVersion,
  stripProofMembers,
  stripUnsetMembers,
} from './completion-hash.ts'
import { canonicalizeJson } from './json/canonical.ts'
import type { JsonObject } from './json/value.ts'

/**
 * As hashResponse, for a request as JSON. Unset members of the request are left out too, so a
 * caller's body, its stored echo, a create response and a stored response all have the same hash.
 *
 * @example
 * const { request, response, hash } = parseExactJson(recordFile)
 * console.log(hashCompletion({ request, response }).hash === hash) // true
 */
export function hashCompletion(
  completion: {
    readonly request: JsonObject
    readonly response: JsonObject
    readonly version?: ReceiptVersion
  },
  digest: (data: Uint8Array) => Uint8Array = sha256,
): CompletionHash {
  const canonicalRequest = canonicalizeJson(stripUnsetMembers(completion.request))
  const requestDigest = digest(encodeUtf8(canonicalRequest))
  return hashResponse({ canonicalRequest, requestDigest, ...completion }, digest)
}

/**
 * The `stream_hash` of a receipt (hex): SHA-256 over the chunks that the enclave sent, in order,
 * each as canonical JSON without proof members and with a line feed.
 */
export function hashChunks(chunks: readonly JsonObject[]): string {
  const hash = nobleSha256.create()
  for (const chunk of chunks)
    hash.update(encodeUtf8(`${canonicalizeJson(stripProofMembers(chunk))}\n`))
  return encodeHex(hash.digest())
}
