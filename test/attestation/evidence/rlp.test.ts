import { encodeRlp as ethersEncode, type RlpStructuredData } from 'ethers'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import {
  decodeRlp,
  encodeRlp,
  encodeRlpNumber,
  RLP_DEPTH_MAX,
  type RlpItem,
} from '#attestation/evidence/rlp.ts'

const { item: rlpItem } = fc.letrec<{ item: RlpItem }>((tie) => ({
  item: fc.oneof(
    { maxDepth: 4 },
    fc.uint8Array({ maxLength: 70 }),
    fc.array(tie('item') as fc.Arbitrary<RlpItem>, { maxLength: 6 }),
  ),
}))

it('decodeRlp reads what ethers writes, and encodeRlp writes the same', () => {
  fc.assert(
    fc.property(rlpItem, (item) => {
      const bytes = ethersBytes(item)
      expect(hexOf(decodeRlp(bytes))).toEqual(hexOf(item))
      expect(encodeRlp(item)).toEqual(bytes)
    }),
  )
})

it('decodeRlp reads the yellow paper’s examples and payloads around every change of the length’s form', () => {
  expect(hexOf(decodeRlp(decodeHex('c88363617483646f67')))).toEqual(['636174', '646f67'])
  expect(hexOf(decodeRlp(decodeHex('c7c0c1c0c3c0c1c0')))).toEqual([[], [[]], [[], [[]]]])
  for (const length of [0, 1, 2, 55, 56, 57, 255, 256, 257, 65_535, 65_536, 70_000])
    for (const item of [new Uint8Array(length).fill(0x80), [new Uint8Array(length).fill(7)]])
      expect(hexOf(decodeRlp(ethersBytes(item)))).toEqual(hexOf(item))
})

it('every value has one encoding: encodeRlp writes byte for byte what decodeRlp read', () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 12 }),
    fc.tuple(rlpItem, fc.nat(), fc.nat(255)).map(([item, at, byte]) =>
      encodeRlp(item)
        .with(0, byte)
        .with(at % encodeRlp(item).length, byte),
    ),
  )
  fc.assert(
    fc.property(bytes, (input) => {
      try {
        expect(equalBytes(encodeRlp(decodeRlp(input)), input)).toBe(true)
      } catch (fault) {
        expect(fault).toBeInstanceOf(FormatError)
        expect(fault).toHaveProperty('code', 'invalid_rlp')
      }
    }),
    { numRuns: 600 },
  )
})

it.each([
  ['nothing', '', /truncated/],
  ['a string that is cut off', '83aabb', /truncated/],
  ['a list that is cut off', 'c3aa', /truncated/],
  ['a string that goes on beyond its list', 'c283aabbcc', /truncated/],
  ['a length that is cut off', 'b9ff', /truncated/],
  ['a length of 2^56', 'bf0100000000000000', /truncated/],
  ['a length of 2^64-1', 'bfffffffffffffffff', /truncated/],
  ['a list of the length 2^48', 'fe01000000000000', /truncated/],
  ['bytes after the value', '0000', /1 bytes after/],
  ['a byte after a list', 'c000', /1 bytes after/],
  ['a byte below 0x80 with a prefix', '8100', /without a prefix/],
  ['the byte 0x7f with a prefix', '817f', /without a prefix/],
  ['a prefixed small byte inside a list', 'c28101', /without a prefix/],
  ['a short string in the long form', `b837${'aa'.repeat(55)}`, /long form/],
  ['a short list in the long form', 'f80180', /long form/],
  ['a length with leading zeros', `b90038${'aa'.repeat(56)}`, /leading zeros/],
  ['a list’s length with leading zeros', `f90038${'01'.repeat(56)}`, /leading zeros/],
])('decodeRlp refuses malformed bytes: %s', (_, hex, message) => {
  expect(() => decodeRlp(decodeHex(hex))).toThrow(message)
})

it('decodeRlp reads lists up to its depth and refuses deeper ones without running out of stack', () => {
  expect(decodeRlp(nested(RLP_DEPTH_MAX))).toBeInstanceOf(Array)
  expect(() => decodeRlp(nested(RLP_DEPTH_MAX + 1))).toThrow(/inside each other/)
  expect(() => decodeRlp(nested(3000))).toThrow(/inside each other/)
})

/** `depth` lists inside each other. */
function nested(depth: number): Uint8Array {
  let bytes = Uint8Array.of(0xc0)
  for (let level = 1; level < depth; level++) {
    const size = encodeRlpNumber(bytes.length)
    const prefix = bytes.length < 56 ? [0xc0 + bytes.length] : [0xf7 + size.length, ...size]
    bytes = Uint8Array.from([...prefix, ...bytes])
  }
  return bytes
}

function ethersBytes(item: RlpItem): Uint8Array {
  return decodeHex(ethersEncode(item as RlpStructuredData))
}

type HexItem = string | readonly HexItem[]

function hexOf(item: RlpItem): HexItem {
  return item instanceof Uint8Array ? encodeHex(item) : item.map(hexOf)
}
