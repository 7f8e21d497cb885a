import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decodeResponse, encodeRequest, NsmError } from '#enclave/nsm/nsm.ts'
import { NSM_WIRE_ERRORS, type NsmRequest, type NsmResponse } from '#enclave/protocol/nsm-wire.ts'
import { decodeRequest, encodeResponse } from '#src/local/nsm/security-module.ts'

const file = new URL('../../vectors/nsm/wire.json', import.meta.url)
const { vectors } = JSON.parse(readFileSync(file, 'utf8')) as {
  vectors: { name: string; cbor_hex: string }[]
}
const text = (value: string) => new Uint8Array(Buffer.from(value, 'ascii'))
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
const unhex = (value: string) => new Uint8Array(Buffer.from(value, 'hex'))

const REQUESTS: Record<string, NsmRequest> = {
  'req GetRandom': { kind: 'GetRandom' },
  'req Attestation all null': { kind: 'Attestation', userData: null, nonce: null, publicKey: null },
  'req Attestation ud,nonce,pk': {
    kind: 'Attestation',
    userData: text('ud'),
    nonce: text('no'),
    publicKey: text('pk'),
  },
}

const RESPONSES: Record<string, NsmResponse> = {
  ...Object.fromEntries(
    NSM_WIRE_ERRORS.map((code) => [
      `resp Error ${code}`,
      { kind: 'Error', code } satisfies NsmResponse,
    ]),
  ),
}

/** Of the registers, which an enclave neither asks about nor changes. */
const OTHER_CALLS = /^(req|resp) (DescribeNSM|DescribePCR|ExtendPCR|LockPCRs?)\b/

describe('the wire vectors', () => {
  it('the wire vectors are all requests and responses known here, and calls that enclaves do not make', () => {
    const known = [...Object.keys(REQUESTS), ...Object.keys(RESPONSES)].sort()
    const names = vectors.map(({ name }) => name).filter((name) => !OTHER_CALLS.test(name))
    expect(names.sort()).toEqual(known)
  })

  it.each(vectors)(
    'the wire vector $name is written and read byte for byte, or refused',
    ({ name, cbor_hex }) => {
      const request = REQUESTS[name]
      const response = RESPONSES[name]
      if (request !== undefined) {
        expect(hex(encodeRequest(request))).toBe(cbor_hex)
        expect(decodeRequest(unhex(cbor_hex))).toEqual(request)
      } else if (response !== undefined) {
        expect(hex(encodeResponse(response))).toBe(cbor_hex)
        expect(decodeResponse(unhex(cbor_hex))).toEqual(response)
      } else {
        const refused = expect.objectContaining({
          code: name.startsWith('req') ? 'InvalidOperation' : 'InvalidResponse',
        })
        const decode = name.startsWith('req') ? decodeRequest : decodeResponse
        expect(() => decode(unhex(cbor_hex))).toThrow(refused)
      }
    },
  )
})

describe('decodeResponse', () => {
  it('decodeResponse takes an error name it does not know as InternalError', () => {
    expect(decodeResponse(unhex('a1654572726f7263466f6f'))).toEqual({
      kind: 'Error',
      code: 'InternalError',
    })
  })

  it('decodeResponse reads maps of indefinite length, which newer modules write elsewhere', () => {
    const bytes = unhex('bf6947657452616e646f6dbf6672616e646f6d43010203ffff')
    expect(decodeResponse(bytes)).toEqual({ kind: 'GetRandom', random: Uint8Array.of(1, 2, 3) })
  })

  it('decodeResponse refuses an answer that lacks a member', () => {
    expect(() => decodeResponse(unhex('a16947657452616e646f6da0'))).toThrow(
      expect.objectContaining({ code: 'InvalidResponse' }),
    )
  })

  it('decodeResponse throws nothing but NsmError on random bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        try {
          decodeResponse(bytes)
        } catch (error) {
          expect(error).toBeInstanceOf(NsmError)
        }
      }),
      { numRuns: 2000 },
    )
  })
})
