import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  decodeRequest,
  decodeResponse,
  encodeRequest,
  encodeResponse,
  type NsmRequest,
  type NsmResponse,
} from '../../../enclave/nsm/messages.ts'
import { NSM_WIRE_ERRORS, NsmError } from '../../../enclave/nsm/nsm.ts'

const file = new URL('../../vectors/nsm/wire.json', import.meta.url)
const { vectors } = JSON.parse(readFileSync(file, 'utf8')) as {
  vectors: { name: string; cbor_hex: string }[]
}
const text = (value: string) => new Uint8Array(Buffer.from(value, 'ascii'))
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
const unhex = (value: string) => new Uint8Array(Buffer.from(value, 'hex'))

const REQUESTS: Record<string, NsmRequest> = {
  'req GetRandom': { kind: 'GetRandom' },
  'req DescribeNSM': { kind: 'DescribeNSM' },
  'req DescribePCR 0': { kind: 'DescribePCR', index: 0 },
  'req ExtendPCR 16 010203': { kind: 'ExtendPCR', index: 16, data: Uint8Array.of(1, 2, 3) },
  'req LockPCR 16': { kind: 'LockPCR', index: 16 },
  'req LockPCRs 32': { kind: 'LockPCRs', range: 32 },
  'req Attestation all null': { kind: 'Attestation', userData: null, nonce: null, publicKey: null },
  'req Attestation ud,nonce,pk': {
    kind: 'Attestation',
    userData: text('ud'),
    nonce: text('no'),
    publicKey: text('pk'),
  },
}

const RESPONSES: Record<string, NsmResponse> = {
  'resp LockPCR': { kind: 'LockPCR' },
  'resp LockPCRs': { kind: 'LockPCRs' },
  'resp ExtendPCR': {
    kind: 'ExtendPCR',
    value: unhex(
      'cb178fcd3f328244c05c6248723fd068b3a1dda878e1ab8be911098f199958add55d0c27f04826d27b44d949a650694e',
    ),
  },
  ...Object.fromEntries(
    NSM_WIRE_ERRORS.map((code) => [`resp Error ${code}`, { kind: 'Error', code } satisfies NsmResponse]),
  ),
}

describe('the wire vectors', () => {
  it('are all requests and responses known here', () => {
    const known = [...Object.keys(REQUESTS), ...Object.keys(RESPONSES)].sort()
    expect(vectors.map(({ name }) => name).sort()).toEqual(known)
  })

  it.each(vectors)('$name is written and read byte for byte', ({ name, cbor_hex }) => {
    const request = REQUESTS[name]
    const response = RESPONSES[name]
    if (request !== undefined) {
      expect(hex(encodeRequest(request))).toBe(cbor_hex)
      expect(decodeRequest(unhex(cbor_hex))).toEqual(request)
    } else if (response !== undefined) {
      expect(hex(encodeResponse(response))).toBe(cbor_hex)
      expect(decodeResponse(unhex(cbor_hex))).toEqual(response)
    } else expect.unreachable(name)
  })
})

describe('responses that have no vector', () => {
  const description = {
    kind: 'DescribeNSM',
    versionMajor: 1,
    versionMinor: 0,
    versionPatch: 0,
    moduleId: 'i-0123-enc4567',
    pcrCount: 32,
    lockedPcrs: [0, 1, 30],
    digest: 'SHA384',
  } as const satisfies NsmResponse
  it.each<NsmResponse>([
    description,
    { kind: 'GetRandom', random: new Uint8Array(256).fill(7) },
    { kind: 'DescribePCR', locked: true, value: new Uint8Array(48) },
    { kind: 'Attestation', document: new Uint8Array(5000).fill(1) },
  ])('$kind comes back as it was', (response) => {
    expect(decodeResponse(encodeResponse(response))).toEqual(response)
  })

  it('DescribeNSM is read in any order of members, as other implementations write it', () => {
    const members = [
      '66646967657374665348413338 34', // digest: SHA384
      '686d61785f70637273 1820',
      '696d6f64756c655f6964 6161',
      '6b6c6f636b65645f70637273 8100',
      '6d76657273696f6e5f6d616a6f72 01',
      '6d76657273696f6e5f6d696e6f72 00',
      '6d76657273696f6e5f7061746368 00',
    ].join('')
    const bytes = unhex(`a16b44657363726962654e534da7${members.replaceAll(' ', '')}`)
    expect(decodeResponse(bytes)).toMatchObject({
      digest: 'SHA384',
      pcrCount: 32,
      moduleId: 'a',
      lockedPcrs: [0],
    })
  })
})

describe('decodeRequest', () => {
  it.each([
    ['an unknown call', '63466f6f', 'InvalidOperation'],
    ['no bytes', '', 'InvalidOperation'],
    ['a trailing byte', '6947657452616e646f6d00', 'InvalidOperation'],
    ['a number', '05', 'InvalidOperation'],
    ['two calls in one map', 'a26147f66148f6', 'InvalidOperation'],
    ['a call without its members', '674c6f636b504352', 'InvalidArgument'],
    ['an index that is text', 'a1674c6f636b504352a165696e6465786130', 'InvalidArgument'],
    ['a negative index', 'a1674c6f636b504352a165696e64657820', 'InvalidArgument'],
    ['an index beyond 16 bits', 'a1674c6f636b504352a165696e6465781a00010000', 'InvalidArgument'],
    ['user data that is text', 'a16b4174746573746174696f6ea169757365725f646174616161', 'InvalidArgument'],
    ['an attestation without members', '6b4174746573746174696f6e', 'InvalidArgument'],
  ])('refuses %s', (_, bytes, code) => {
    expect(() => decodeRequest(unhex(bytes))).toThrow(expect.objectContaining({ name: 'NsmError', code }))
  })

  it('takes left out attestation members as null', () => {
    const bytes = unhex('a16b4174746573746174696f6ea1656e6f6e636540')
    expect(decodeRequest(bytes)).toEqual({
      kind: 'Attestation',
      nonce: new Uint8Array(),
      userData: null,
      publicKey: null,
    })
  })

  it('throws nothing but NsmError on random bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        for (const decode of [decodeRequest, decodeResponse])
          try {
            decode(bytes)
          } catch (error) {
            expect(error).toBeInstanceOf(NsmError)
          }
      }),
      { numRuns: 2000 },
    )
  })
})

describe('encodeRequest', () => {
  it.each([-1, 1.5, 0x1_0000, Number.NaN])('refuses the index %d', (index) => {
    expect(() => encodeRequest({ kind: 'LockPCR', index })).toThrow(
      expect.objectContaining({ code: 'InvalidIndex' }),
    )
  })
})

describe('decodeResponse', () => {
  it('takes an error name it does not know as InternalError', () => {
    expect(decodeResponse(unhex('a1654572726f7263466f6f'))).toEqual({ kind: 'Error', code: 'InternalError' })
  })

  it('reads maps of indefinite length, which newer modules write elsewhere', () => {
    const bytes = unhex('bf6947657452616e646f6dbf6672616e646f6d43010203ffff')
    expect(decodeResponse(bytes)).toEqual({ kind: 'GetRandom', random: Uint8Array.of(1, 2, 3) })
  })

  it('refuses an answer that lacks a member', () => {
    expect(() => decodeResponse(unhex('a16947657452616e646f6da0'))).toThrow(
      expect.objectContaining({ code: 'InvalidResponse' }),
    )
  })
})
