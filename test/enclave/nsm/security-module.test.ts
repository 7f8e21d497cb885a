import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { createCertificateChain } from '../../../enclave/nsm/certificate-chain.ts'
import { openDevelopmentRoot } from '../../../enclave/nsm/development-root.ts'
import { decodeResponse, encodeRequest, type NsmRequest } from '../../../enclave/nsm/messages.ts'
import {
  createSecurityModule,
  extendDigest,
  type SecurityModule,
} from '../../../enclave/nsm/security-module.ts'

const NOW_MS = Date.parse('2026-08-03T19:36:15.857Z')
const IDENTITY = { instanceId: 'i-018e0c27541e1f15a', enclaveId: Buffer.from('019fc8255f07a185', 'hex') }
const digest = (fill: number) => new Uint8Array(48).fill(fill)
const ZERO = digest(0)
const NO_INPUT = { publicKey: null, userData: null, nonce: null }

const root = await openDevelopmentRoot(null, NOW_MS)
let module: SecurityModule
beforeEach(() => {
  module = createSecurityModule({
    identity: IDENTITY,
    measurements: [digest(1), digest(2), digest(3)],
    chainAt: createCertificateChain(root, IDENTITY),
    now: () => NOW_MS,
  })
})
const ask = (request: NsmRequest) => decodeResponse(module.processRequest(encodeRequest(request)))
const error = (code: string) => ({ kind: 'Error', code })

describe('registers at boot', () => {
  it('hold the measurements in 0 to 2 and zeros elsewhere, but for PCR4', () => {
    const values = Array.from({ length: 32 }, (_, index) => ask({ kind: 'DescribePCR', index }))
    expect(values.slice(0, 3)).toEqual(
      [1, 2, 3].map((fill) => ({ kind: 'DescribePCR', locked: true, value: digest(fill) })),
    )
    for (const [index, value] of values.entries())
      if (index > 4 || index === 3)
        expect(value).toEqual({ kind: 'DescribePCR', locked: index < 16, value: ZERO })
  })

  it('hold the digest of the instance id in PCR4, as a real document of this instance does', () => {
    const aws =
      '6bc886f2b244a21f5bffcf8908651cc08bd44fdf89055a0cc0666d276e6655b85fdd5931ed52ba6031fd6c378638e38d'
    expect(ask({ kind: 'DescribePCR', index: 4 })).toEqual({
      kind: 'DescribePCR',
      locked: true,
      value: new Uint8Array(Buffer.from(aws, 'hex')),
    })
  })

  it('are 32, of which 0 to 15 are locked', () => {
    expect(ask({ kind: 'DescribeNSM' })).toEqual({
      kind: 'DescribeNSM',
      versionMajor: 1,
      versionMinor: 0,
      versionPatch: 0,
      moduleId: 'i-018e0c27541e1f15a-enc019fc8255f07a185',
      pcrCount: 32,
      lockedPcrs: Array.from({ length: 16 }, (_, index) => index),
      digest: 'SHA384',
    })
  })
})

describe('ExtendPCR', () => {
  it('sets a register to SHA384(old || data), again and again', () => {
    const once = createHash('sha384').update(ZERO).update('abc').digest()
    const twice = createHash('sha384').update(once).update('').digest()
    expect(ask({ kind: 'ExtendPCR', index: 16, data: Buffer.from('abc') })).toMatchObject({
      value: new Uint8Array(once),
    })
    expect(ask({ kind: 'ExtendPCR', index: 16, data: new Uint8Array() })).toMatchObject({
      value: new Uint8Array(twice),
    })
    expect(ask({ kind: 'DescribePCR', index: 16 })).toMatchObject({
      value: new Uint8Array(twice),
      locked: false,
    })
  })

  it('agrees with the wire vector of PCR16 and 010203', () => {
    const value =
      'cb178fcd3f328244c05c6248723fd068b3a1dda878e1ab8be911098f199958add55d0c27f04826d27b44d949a650694e'
    const answer = ask({ kind: 'ExtendPCR', index: 16, data: Uint8Array.of(1, 2, 3) })
    expect(answer).toEqual({ kind: 'ExtendPCR', value: new Uint8Array(Buffer.from(value, 'hex')) })
    expect(Buffer.from(extendDigest(ZERO, Uint8Array.of(1, 2, 3))).toString('hex')).toBe(value)
  })

  it('refuses a locked register and leaves it as it was', () => {
    expect(ask({ kind: 'ExtendPCR', index: 15, data: Uint8Array.of(1) })).toEqual(error('ReadOnlyIndex'))
    expect(ask({ kind: 'DescribePCR', index: 15 })).toMatchObject({ value: ZERO })
  })

  it('refuses a register that does not exist', () => {
    expect(ask({ kind: 'ExtendPCR', index: 32, data: Uint8Array.of(1) })).toEqual(error('InvalidIndex'))
  })
})

describe('LockPCR and LockPCRs', () => {
  it('lock a register for good', () => {
    expect(ask({ kind: 'LockPCR', index: 20 })).toEqual({ kind: 'LockPCR' })
    expect(ask({ kind: 'ExtendPCR', index: 20, data: Uint8Array.of(1) })).toEqual(error('ReadOnlyIndex'))
    expect(ask({ kind: 'LockPCR', index: 20 })).toEqual(error('ReadOnlyIndex'))
  })

  it('lock everything below a range, whether locked already or not', () => {
    expect(ask({ kind: 'LockPCRs', range: 18 })).toEqual({ kind: 'LockPCRs' })
    expect(ask({ kind: 'DescribeNSM' })).toMatchObject({
      lockedPcrs: Array.from({ length: 18 }, (_, index) => index),
    })
    expect(ask({ kind: 'LockPCRs', range: 32 })).toEqual({ kind: 'LockPCRs' })
  })

  it('refuse what lies beyond the last register', () => {
    expect(ask({ kind: 'LockPCR', index: 32 })).toEqual(error('InvalidIndex'))
    expect(ask({ kind: 'LockPCRs', range: 33 })).toEqual(error('InvalidIndex'))
    expect(ask({ kind: 'DescribePCR', index: 32 })).toEqual(error('InvalidIndex'))
  })
})

describe('GetRandom', () => {
  it('gives 256 bytes, other ones each time', () => {
    const [first, second] = [ask({ kind: 'GetRandom' }), ask({ kind: 'GetRandom' })]
    expect(first).toMatchObject({ kind: 'GetRandom', random: expect.objectContaining({ length: 256 }) })
    expect(first).not.toEqual(second)
  })
})

describe('Attestation', () => {
  it('takes 1024 bytes in each field and refuses 1025', () => {
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

  it('refuses an empty public key, since no validator accepts one', () => {
    expect(ask({ kind: 'Attestation', ...NO_INPUT, publicKey: new Uint8Array() })).toEqual(
      error('InvalidArgument'),
    )
  })
})

describe('processRequest', () => {
  it('refuses a request beyond 4096 bytes', () => {
    expect(decodeResponse(module.processRequest(new Uint8Array(4097)))).toEqual(error('InputTooLarge'))
  })

  it('answers InternalError when the chain cannot be had', () => {
    module = createSecurityModule({
      identity: IDENTITY,
      measurements: [ZERO, ZERO, ZERO],
      chainAt: () => {
        throw new Error('broken')
      },
      now: () => NOW_MS,
    })
    expect(ask({ kind: 'Attestation', ...NO_INPUT })).toEqual(error('InternalError'))
  })

  it('answers every run of bytes and never throws', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => {
        expect(decodeResponse(module.processRequest(bytes)).kind).toBeTypeOf('string')
      }),
      { numRuns: 2000 },
    )
  })
})
