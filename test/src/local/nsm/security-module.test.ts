import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { decodeResponse, encodeRequest } from '#enclave/nsm/nsm.ts'
import type { NsmRequest } from '#enclave/protocol/nsm-wire.ts'
import { createCertificateChain } from '#src/local/nsm/certificate-chain.ts'
import { openDevelopmentRoot } from '#src/local/nsm/development-root.ts'
import { createSecurityModule, type SecurityModule } from '#src/local/nsm/security-module.ts'

const NOW_MS = Date.parse('2026-08-03T19:36:15.857Z')
const IDENTITY = {
  instanceId: 'i-018e0c27541e1f15a',
  enclaveId: Buffer.from('019fc8255f07a185', 'hex'),
}
const digest = (fill: number) => new Uint8Array(48).fill(fill)
const ZERO = digest(0)
const NO_INPUT = { publicKey: null, userData: null, nonce: null }

const root = await openDevelopmentRoot(null, NOW_MS)
let module: SecurityModule
beforeEach(() => {
  module = createSecurityModule({
    identity: IDENTITY,
    measurements: { pcr0: digest(1), pcr1: digest(2), pcr2: digest(3) },
    chainAt: createCertificateChain(root, IDENTITY),
    now: () => NOW_MS,
  })
})
const ask = (request: NsmRequest) => decodeResponse(module.processRequest(encodeRequest(request)))
const error = (code: string) => ({ kind: 'Error', code })

describe('registers at boot', () => {
  const pcrs = () => {
    const answer = ask({ kind: 'Attestation', ...NO_INPUT })
    if (answer.kind !== 'Attestation') throw new Error('expected a document')
    return decodeAttestationPayload(answer.document).pcrs
  }

  it('registers at boot hold the measurements in 0 to 2 and zeros elsewhere, but for PCR4', () => {
    const values = pcrs()
    expect([0, 1, 2].map((index) => values.get(index))).toEqual([digest(1), digest(2), digest(3)])
    for (const [index, value] of values) if (index > 4 || index === 3) expect(value).toEqual(ZERO)
  })

  it('registers at boot hold the digest of the instance id in PCR4, as a real document of this instance does', () => {
    const aws =
      '6bc886f2b244a21f5bffcf8908651cc08bd44fdf89055a0cc0666d276e6655b85fdd5931ed52ba6031fd6c378638e38d'
    expect(Buffer.from(pcrs().get(4) ?? []).toString('hex')).toBe(aws)
  })
})

describe('Attestation', () => {
  it('Attestation takes 1024 bytes in each field and refuses 1025', () => {
    for (const field of ['publicKey', 'userData', 'nonce']) {
      const input = (length: number) => ({
        kind: 'Attestation' as const,
        ...NO_INPUT,
        [field]: new Uint8Array(length),
      })
      expect(ask(input(1024))).toMatchObject({ kind: 'Attestation' })
      expect(ask(input(1025))).toEqual(error('InputTooLarge'))
    }
  })

  it('Attestation refuses an empty public key, since no validator accepts one', () => {
    expect(ask({ kind: 'Attestation', ...NO_INPUT, publicKey: new Uint8Array() })).toEqual(
      error('InvalidArgument'),
    )
  })
})

describe('processRequest', () => {
  it('processRequest refuses a request beyond 4096 bytes', () => {
    expect(decodeResponse(module.processRequest(new Uint8Array(4097)))).toEqual(
      error('InputTooLarge'),
    )
  })

  it('processRequest answers InternalError when the chain cannot be had', () => {
    module = createSecurityModule({
      identity: IDENTITY,
      measurements: { pcr0: ZERO, pcr1: ZERO, pcr2: ZERO },
      chainAt: () => {
        throw new Error('broken')
      },
      now: () => NOW_MS,
    })
    expect(ask({ kind: 'Attestation', ...NO_INPUT })).toEqual(error('InternalError'))
  })

  it('processRequest answers every run of bytes and never throws', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => {
        expect(decodeResponse(module.processRequest(bytes)).kind).toBeTypeOf('string')
      }),
      { numRuns: 2000 },
    )
  })
})
