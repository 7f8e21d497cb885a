import { Decoder } from 'cbor-x'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeCbor } from '#attestation/nitro/cbor.ts'

const reference = new Decoder({ mapsAsObjects: false, useRecords: false })

/** In the shortest form (RFC 8949 section 4.2.1). */
function encodeHead(major: number, argument: bigint): Uint8Array {
  const [info, width] =
    argument < 24n
      ? [Number(argument), 0]
      : argument < 1n << 8n
        ? [24, 1]
        : argument < 1n << 16n
          ? [25, 2]
          : argument < 1n << 32n
            ? [26, 4]
            : [27, 8]
  const bytes = Array.from({ length: width }, (_, at) =>
    Number((argument >> BigInt(8 * (width - 1 - at))) & 0xffn),
  )
  return Uint8Array.of((major << 5) | info, ...bytes)
}

const headed = (major: number, argument: number, ...rest: readonly Uint8Array[]) =>
  new Uint8Array(Buffer.concat([encodeHead(major, BigInt(argument)), ...rest]))

const ARGUMENT = fc.oneof(fc.bigInt(0n, 300n), fc.bigInt(0n, (1n << 64n) - 1n))
const TEXT = fc
  .string({ unit: 'binary', maxLength: 40 })
  .map((text) => Buffer.from(text))
  .map((bytes) => headed(3, bytes.length, bytes))
const NUMBER = fc
  .tuple(fc.constantFrom(0, 1), ARGUMENT)
  .map(([major, argument]) => encodeHead(major, argument))
const BYTES = fc.uint8Array({ maxLength: 300 }).map((bytes) => headed(2, bytes.length, bytes))
const SIMPLE = fc.constantFrom(0xf4, 0xf5, 0xf6).map((byte) => Uint8Array.of(byte))

const { item } = fc.letrec<{ item: Uint8Array; array: Uint8Array; map: Uint8Array }>((tie) => ({
  item: fc.oneof(
    { maxDepth: 6, depthSize: 'small' },
    ...[NUMBER, TEXT, BYTES, SIMPLE, tie('array'), tie('map')],
  ),
  array: fc.array(tie('item'), { maxLength: 30 }).map((items) => headed(4, items.length, ...items)),
  map: fc
    .uniqueArray(fc.tuple(fc.oneof(NUMBER, TEXT), tie('item')), {
      maxLength: 30,
      selector: ([key]) => Buffer.from(key).toString('hex'),
    })
    .map((pairs) => headed(5, pairs.length, ...pairs.flat())),
}))

it('CBOR in the strict form is decoded as cbor-x decodes it', () => {
  fc.assert(
    fc.property(item, (bytes) => {
      const { value, end } = decodeCbor(bytes)
      expect(end).toBe(bytes.length)
      expect(plain(value)).toEqual(plain(reference.decode(bytes)))
    }),
    { numRuns: 500 },
  )
})

it('a map of indefinite length is read to its break', () => {
  const bytes = Uint8Array.of(0xbf, 0x61, 0x61, 0x01, 0x02, 0x80, 0xff)
  const { value, end } = decodeCbor(bytes, { indefinite: 'top' })
  expect(end).toBe(bytes.length)
  expect(value).toEqual(
    new Map<unknown, unknown>([
      ['a', 1],
      [2, []],
    ]),
  )
})

it('a byte order mark at the beginning of text is kept', () => {
  expect(decodeCbor(Uint8Array.of(0x63, 0xef, 0xbb, 0xbf)).value).toBe('\ufeff')
})

it('byte strings are given without copying them', () => {
  const bytes = Uint8Array.of(0x42, 1, 2)
  const { value } = decodeCbor(bytes)
  expect(value instanceof Uint8Array && value.buffer === bytes.buffer).toBe(true)
})

/** Buffers and Uint8Arrays are the same to their readers. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return [...value]
  if (Array.isArray(value)) return value.map(plain)
  if (value instanceof Map) return new Map([...value].map(([key, one]) => [key, plain(one)]))
  return value
}
