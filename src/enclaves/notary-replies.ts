import { z } from 'zod'
import type { Identity } from '#enclave/protocol/enclave-api.ts'
import { address, base64, digest, hexBytes, unixSeconds } from '../api/schemas.ts'

/** The enclave's attestation document proves this configuration. */
export const bootConfiguration = z.looseObject({
  protocol_version: z.int(),
  chain_id: z.int(),
  contract: address,
})

export const attestationReply = z.strictObject({
  attestation: base64,
  public_key: z.string(),
  notary: address,
  boot_configuration: bootConfiguration,
})

export const servedNotary = attestationReply.extend({
  status: z.enum(['in_use', 'draining']),
  encryption_keys: z
    .array(
      z.strictObject({
        public_key: digest,
        not_before: unixSeconds,
        not_after: unixSeconds,
        signature: hexBytes,
      }),
    )
    .describe('X25519 keys that calls may be encrypted to, each signed by the notary'),
})

/** `GET /v1/attestation`. */
export type AttestationReply = {
  /** Standard base64. A fresh document over the nonce, or the current document. */
  readonly attestation: string
  readonly public_key: string
  readonly notary: string
  /** The document's user_data is the digest of this configuration. */
  readonly boot_configuration: Identity['boot_configuration']
}
