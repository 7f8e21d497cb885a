import { z } from 'zod'
import type { Identity } from '../../enclave/protocol/enclave-api.ts'
import { address, base64, digest, hexBytes, unixSeconds } from '../api/schemas.ts'

/** The configuration that the enclave's attestation document proves. */
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

/** The public description of the enclave: `GET /v1/attestation`. */
export type AttestationReply = {
  /** Attestation document, standard base64: a fresh document over the nonce, or the current one. */
  readonly attestation: string
  readonly public_key: string
  readonly notary: string
  /** The document's user_data is the digest of this configuration. */
  readonly boot_configuration: Identity['boot_configuration']
}
