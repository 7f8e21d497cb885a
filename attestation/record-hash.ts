import { sha256 as nobleSha256 } from '@noble/hashes/sha2.js'
import { encodeHex, encodeUtf8, sha256 } from './bytes.ts'
import { type CompletionHash, hashResponse, stripProofMembers } from './completion-hash.ts'
import type { DialectName } from './dialects/dialect-names.ts'
import { DIALECTS } from './dialects/dialects.ts'
import { canonicalizeJson } from './json/canonical.ts'
import type { JsonObject } from './json/value.ts'

/**
 * Hashes the request and the response of a completion, as hashResponse does. `request` has the form
 * of its dialect in records. Members that are not hashed are left out, so a record and the caller's
 * copies have the same hashes. `dialect`: default chat.
 *
 * @example
 * const { request, response, hash } = parseExactJson(recordFile)
 * console.log(hashCompletion({ request, response }).hash === hash) // true
 */
export function hashCompletion(
  completion: {
    readonly request: JsonObject
    readonly response: JsonObject
    readonly dialect?: DialectName
  },
  digest: (data: Uint8Array) => Uint8Array = sha256,
): CompletionHash {
  const { request, response, dialect = 'chat' } = completion
  const { hashedRequest, hashedResponse } = DIALECTS[dialect]
  const canonicalRequest = canonicalizeJson(hashedRequest(request))
  return hashResponse(
    {
      canonicalRequest,
      requestDigest: digest(encodeUtf8(canonicalRequest)),
      response: hashedResponse(response),
    },
    digest,
  )
}

/**
 * The `stream_hash` of a receipt (hex): SHA-256 over the chunks that the enclave sent, in order. Of
 * each chunk, it covers the canonical JSON without proof members, then a line feed.
 */
export function hashChunks(chunks: readonly JsonObject[]): string {
  const hash = nobleSha256.create()
  for (const chunk of chunks)
    hash.update(encodeUtf8(`${canonicalizeJson(stripProofMembers(chunk))}\n`))
  return encodeHex(hash.digest())
}
