import { encodeUtf8, sha256 } from '../bytes.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import type { JsonObject } from '../json/value.ts'

/**
 * The `user_data` of the enclave's attestation documents: SHA-256 of the canonical JSON of its boot
 * configuration.
 */
export function digestBootConfiguration(configuration: JsonObject): Uint8Array {
  return sha256(encodeUtf8(canonicalizeJson(configuration)))
}
