import { decodeBase64, encodeHex } from '#attestation/bytes.ts'
import { attempt } from '#attestation/finding.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'

/**
 * PCR0 (hex), the hash of the enclave's image. Null when the document cannot be parsed. Does NOT
 * verify the document.
 */
export function readCode(document: string): string | null {
  const found = attempt(() => decodeAttestationPayload(decodeBase64(document)).pcrs.get(0))
  return 'fault' in found || found.value === undefined ? null : encodeHex(found.value)
}
