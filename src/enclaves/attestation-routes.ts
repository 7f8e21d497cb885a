import { z } from 'zod'
import { defineRoute, type Route } from '../api/route.ts'
import { address, base64, hexText } from '../api/schemas.ts'
import type { Attestations } from './attestations.ts'

/**
 * What a caller asks of an attestation: over 16 to 64 bytes of a nonce (hex, lower case, without
 * 0x), else the current document will do; of the enclave of a notary (0x, lower case), else of any
 * that is in use. Other parameters are ignored.
 */
export const attestationQuery = z.object({
  nonce: hexText(16, 64, '16 to 64 bytes as hex digits').optional(),
  notary: hexText(20, 20, 'an address, 40 hex digits')
    .transform((text) => `0x${text}`)
    .optional(),
})

/** What the enclave's attestation document is about. */
export const bootConfiguration = z.looseObject({
  protocol_version: z.int(),
  chain_id: z.int(),
  contract: address,
})

const attestationReply = z.strictObject({
  attestation: base64,
  public_key: z.string(),
  notary: address,
  boot_configuration: bootConfiguration,
})

const notaryList = z.strictObject({
  notaries: z.array(attestationReply.extend({ status: z.enum(['in_use', 'draining']) })),
})

/** `GET /v1/attestation` and `GET /v1/notaries`. */
export function attestationRoutes(attestations: Attestations): readonly Route[] {
  const open = { method: 'GET', tag: 'Service', scope: 'public' } as const
  return [
    defineRoute({
      ...open,
      path: '/v1/attestation',
      summary: "An enclave's attestation document, fresh over a nonce",
      query: attestationQuery,
      reply: { name: 'Attestation', schema: attestationReply },
      errors: ['enclave_unavailable', 'not_found', 'overloaded'],
      handler: ({ query: { nonce = null, notary = null } }) => attestations.attest(nonce, notary),
    }),
    defineRoute({
      ...open,
      path: '/v1/notaries',
      summary: 'The notaries of all enclaves in use, with their attestation documents',
      reply: { name: 'NotaryList', schema: notaryList },
      handler: async () => ({ notaries: attestations.list() }),
    }),
  ]
}
