/*
 * Writer for the CBOR (RFC 8949) between a security module and its clients: definite lengths,
 * shortest heads. Only the map of AWS's documents may be indefinite: AWS uses this form since 2025.
 * Every function returns the complete encoding of one item. Arrays and maps take encoded
 * items. Throws RangeError for a length or integer outside of 0 to 2^53-1.
 */

export function encodeUnsigned(value: number): Uint8Array {
  return encodeHead(MAJOR.unsigned, value)
}

export function encodeBytes(value: Uint8Array): Uint8Array {
  return Buffer.concat([encodeHead(MAJOR.bytes, value.length), value])
}

export function encodeText(value: string): Uint8Array {
  const utf8 = Buffer.from(value, 'utf8')
  return Buffer.concat([encodeHead(MAJOR.text, utf8.length), utf8])
}

export function encodeArray(items: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat([encodeHead(MAJOR.array, items.length), ...items])
}

/** Encodes a map in the order of its entries, like serde for structs. Keys are not sorted. */
export function encodeMap(entries: readonly CborEntry[]): Uint8Array {
  return Buffer.concat([encodeHead(MAJOR.map, entries.length), ...entries.flat()])
}

export function encodeIndefiniteMap(entries: readonly CborEntry[]): Uint8Array {
  return Buffer.concat([INDEFINITE_MAP, ...entries.flat(), BREAK])
}

/** Encodes null as CBOR null. */
export function encodeOptionalBytes(value: Uint8Array | null): Uint8Array {
  return value === null ? Uint8Array.of(0xf6) : encodeBytes(value)
}

type CborEntry = readonly [key: Uint8Array, value: Uint8Array]

const MAJOR = { unsigned: 0, bytes: 2, text: 3, array: 4, map: 5 } as const
const INDEFINITE_MAP = Uint8Array.of(0xbf)
const BREAK = Uint8Array.of(0xff)

function encodeHead(major: number, value: number): Uint8Array {
  if (!Number.isSafeInteger(value) || value < 0)
    throw new RangeError(`no CBOR length or integer: ${value}`)
  const initial = major << 5
  if (value < 24) return Uint8Array.of(initial | value)
  if (value <= 0xff) return Uint8Array.of(initial | 24, value)
  if (value <= 0xffff) return Uint8Array.of(initial | 25, value >> 8, value & 0xff)
  const wide = value > 0xffff_ffff
  const head = Buffer.alloc(wide ? 9 : 5)
  head.writeUInt8(initial | (wide ? 27 : 26), 0)
  if (wide) head.writeBigUInt64BE(BigInt(value), 1)
  else head.writeUInt32BE(value, 1)
  return head
}
