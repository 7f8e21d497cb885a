import { z } from 'zod'
import { hexText, type QueryParameters, validateParameters } from '../api/parameters.ts'

/** What a caller asks of an enclave's attestation. */
export type AttestationQuery = {
  /** 16 to 64 bytes as lower-case hex without 0x; null: the current document will do. */
  readonly nonce: string | null
  /** Of which enclave, by its notary: 0x, lower case; null: of any that is in use. */
  readonly notary: string | null
}

/** Query of an attestation; other parameters are ignored. Throws ValidationError. */
export function parseAttestationQuery(parameters: QueryParameters): AttestationQuery {
  const { nonce = null, notary } = validateParameters('query', attestationQuery, parameters)
  return { nonce, notary: notary === undefined ? null : `0x${notary}` }
}

/** Query of `GET /v1/attestation`. */
export const attestationQuery = z.object({
  nonce: hexText(16, 64, '16 to 64 bytes as hex digits').optional(),
  notary: hexText(20, 20, 'an address, 40 hex digits').optional(),
})
