import { expect, it } from 'vitest'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import {
  buildDocument,
  PCR_VALUES,
  standardChain,
} from '../../support/nitro-builder/document-builder.ts'

it('a decoded payload has every field, its PCRs in order, and null for absent fields', () => {
  const pcrs = new Map([...PCR_VALUES].reverse())
  const decoded = decodeAttestationPayload(
    buildDocument({ fields: { pcrs, nonce: undefined, user_data: null, new: 1 } }),
  )
  expect(decoded).toMatchObject({
    moduleId: 'i-0123456789abcdef0-enc0123456789abcdef',
    timestampMs: MADE_AT.getTime(),
    certificate: standardChain.certificate,
    cabundle: standardChain.cabundle,
    publicKey: new Uint8Array(Buffer.from('the public key')),
    userData: null,
    nonce: null,
    unknownKeys: ['new'],
  })
  expect([...decoded.pcrs.keys()]).toEqual(Array.from({ length: 16 }, (_, index) => index))
  expect(decoded.pcrs.get(3)).toEqual(new Uint8Array(PCR_VALUES.get(3) ?? []))
})

it('decodeAttestationPayload does not detect a forged signature, an unknown root or another time', () => {
  const forged = buildDocument({
    signature: new Uint8Array(96),
    fields: { timestamp: 1, cabundle: [Uint8Array.of(0)] },
  })
  expect(decodeAttestationPayload(forged).timestampMs).toBe(1)
})

it('a timestamp beyond 2^53 is given as the nearest double', () => {
  expect(
    decodeAttestationPayload(buildDocument({ fields: { timestamp: 2n ** 64n - 1n } })).timestampMs,
  ).toBe(2 ** 64)
})
