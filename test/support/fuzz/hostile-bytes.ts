import fc from 'fast-check'

/** Bytes that are not UTF-8, not JSON, or in another encoding. */
const BROKEN: readonly (readonly number[])[] = [
  [0],
  [0xff],
  [0xc0, 0x80],
  [0xed, 0xa0, 0x80],
  [0xf4, 0x90, 0x80, 0x80],
  [0xe2, 0x82],
  [0x80],
  [0xef, 0xbb, 0xbf],
  [0xff, 0xfe],
  [0x1f, 0x8b, 8],
  [0x0d, 0x0a],
  [0x22],
  [0x5c],
  [0x1a],
  [0x2d, 0x2d],
]

const piece = fc.oneof(
  fc.constantFrom(...BROKEN.map((bytes) => Uint8Array.from(bytes))),
  fc.uint8Array({ minLength: 1, maxLength: 12 }),
)

/**
 * The bytes with one to three changes: an insertion, an overwrite, a cut, a repetition, or UTF-16.
 */
export function spoilBytes(bytes: fc.Arbitrary<Uint8Array>): fc.Arbitrary<Uint8Array> {
  const wound = fc.record({
    /** The position, as a fraction of the length. */
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    kind: fc.constantFrom('insert', 'insert', 'overwrite', 'cut', 'repeat', 'widen'),
    piece,
  })
  return fc
    .tuple(bytes, fc.array(wound, { minLength: 1, maxLength: 3 }))
    .map(([whole, wounds]) => wounds.reduce(inflict, whole))
}

function inflict(
  bytes: Uint8Array,
  {
    at,
    kind,
    piece: put,
  }: { readonly at: number; readonly kind: string; readonly piece: Uint8Array },
): Uint8Array {
  const position = Math.round(at * bytes.length)
  const head = bytes.subarray(0, position)
  switch (kind) {
    case 'insert':
      return Buffer.concat([head, put, bytes.subarray(position)])
    case 'overwrite':
      return Buffer.concat([head, put, bytes.subarray(position + put.length)])
    case 'repeat':
      return Buffer.concat([bytes, bytes.subarray(position)])
    case 'widen':
      return Buffer.from(Buffer.from(bytes).toString('latin1'), 'utf16le')
    default:
      return head
  }
}
