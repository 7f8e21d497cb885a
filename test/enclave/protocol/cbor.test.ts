import { describe, expect, it } from 'vitest'
import {
  encodeArray,
  encodeBytes,
  encodeIndefiniteMap,
  encodeMap,
  encodeOptionalBytes,
  encodeText,
  encodeUnsigned,
} from '#enclave/protocol/cbor.ts'

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')

describe('CBOR writer', () => {
  // RFC 8949, appendix A.
  it.each([
    [0, '00'],
    [23, '17'],
    [24, '1818'],
    [255, '18ff'],
    [256, '190100'],
    [65_535, '19ffff'],
    [65_536, '1a00010000'],
    [4_294_967_295, '1affffffff'],
    [1_000_000_000_000, '1b000000e8d4a51000'],
  ])('the CBOR writer writes %d with the shortest head', (value, expected) => {
    expect(hex(encodeUnsigned(value))).toBe(expected)
  })

  it.each([-1, 0.5, 2 ** 53])('the CBOR writer refuses %d', (value) => {
    expect(() => encodeUnsigned(value)).toThrow(RangeError)
  })

  it('the CBOR writer writes strings, arrays, maps, booleans and null', () => {
    expect(hex(encodeText('ü'))).toBe('62c3bc')
    expect(hex(encodeBytes(Uint8Array.of(1, 2, 3, 4)))).toBe('4401020304')
    expect(hex(encodeOptionalBytes(null))).toBe('f6')
    expect(hex(encodeOptionalBytes(new Uint8Array()))).toBe('40')
    expect(hex(encodeArray([encodeUnsigned(1), encodeArray([])]))).toBe('820180')
    expect(hex(encodeMap([[encodeText('b'), encodeUnsigned(1)]]))).toBe('a1616201')
    expect(hex(encodeIndefiniteMap([[encodeText('b'), encodeUnsigned(1)]]))).toBe('bf616201ff')
  })
})
