import { z } from 'zod'
import { clientGroupOf } from '../api/client-address.ts'
import { ApiError } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { hexText } from '../api/schemas.ts'
import type { Attestations } from './attestations.ts'
import { attestationReply, servedNotary } from './notary-replies.ts'
import type { ServiceEnclaves } from './service-enclaves.ts'

/**
 * The nonce has 16 to 64 bytes (hex, lower case, without 0x). Without a nonce, the reply is the
 * current document. Without a notary (0x, lower case), any enclave in use answers.
 */
export const attestationQuery = z.object({
  nonce: hexText(16, 64, '16 to 64 bytes as hex digits').optional(),
  notary: hexText(20, 20, 'an address, 40 hex digits')
    .transform((text) => `0x${text}`)
    .optional(),
})

const notaryList = z.strictObject({ notaries: z.array(servedNotary) })

export function attestationRoutes(attestations: Attestations): readonly Route[] {
  const open = { method: 'GET', tag: 'Service', scope: 'public' } as const
  return [
    defineRoute({
      ...open,
      path: '/v1/attestation',
      knowsKeys: true,
      summary: 'A new attestation document of an enclave, with a nonce',
      query: attestationQuery,
      reply: { name: 'Attestation', schema: attestationReply },
      errors: ['enclave_unavailable', 'enclave_timeout', 'not_found', 'not_ready', 'overloaded'],
      handler: ({ context: { state }, query: { nonce = null, notary = null } }) => {
        const group = state.caller?.accountId ?? clientGroupOf(state.client)
        return attestations.attest({ nonce, notary }, { group, isKnown: state.caller !== null })
      },
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

/** RFC 9458 section 3. Clients compare the whole text. */
const KEYS_TYPE = 'application/ohttp-keys'

/** DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM, with key id 0 (RFC 9180 section 7). */
const KEY_CONFIG_HEAD = Buffer.from('000020', 'hex')
const KEY_CONFIG_SUITES = Buffer.from('000400010002', 'hex')

/** EHBP clients read the key here. */
export function encryptionKeyRoutes(
  enclaves: Pick<ServiceEnclaves, 'wellKnownKeys'>,
): readonly Route[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/.well-known/hpke-keys',
      tag: 'Service',
      scope: 'public',
      summary: 'The newest key of one enclave for encrypted calls, in the form of EHBP',
      description:
        'One key configuration of RFC 9458. It does not show whose key it is: a client that must know uses the keys from `/v1/notaries`, which notaries sign.',
      reply: { name: 'EncryptionKeyConfiguration', schema: z.string(), types: [KEYS_TYPE] },
      errors: ['enclave_unavailable'],
      handler: async ({ context }) => {
        const [key] = enclaves.wellKnownKeys()
        if (key === undefined)
          throw new ApiError('enclave_unavailable', 'No enclave in use takes encrypted calls')
        context.set('content-type', KEYS_TYPE)
        context.set('cache-control', 'no-store')
        context.body = Buffer.concat([
          KEY_CONFIG_HEAD,
          Buffer.from(key.public_key, 'hex'),
          KEY_CONFIG_SUITES,
        ])
        return undefined
      },
    }),
  ]
}
