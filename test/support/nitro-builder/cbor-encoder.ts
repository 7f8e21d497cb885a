/** What can be encoded: plain values, or bytes that are already CBOR and are inserted unchanged. */
export type CborValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | Encoded
  | readonly CborValue[]
  | ReadonlyMap<CborValue, CborValue>

export type Encoded = { readonly encoded: Uint8Array }

/** Marks hex or bytes as CBOR that is inserted unchanged, even if it is wrong. */
export function encoded(bytes: Uint8Array | string): Encoded {
  return { encoded: typeof bytes === 'string' ? Buffer.from(bytes, 'hex') : bytes }
}

/** Minimal, definite CBOR of `value`. Numbers must be integers. */
export function encodeCbor(value: CborValue): Uint8Array<ArrayBuffer> {
  return new Uint8Array(encodeItem(value))
}

/** Head of major type `major` in its minimal form. */
export function encodeHead(major: number, argument: number | bigint): Buffer {
  const first = major << 5
  if (argument < 24) return Buffer.of(first | Number(argument))
  if (argument < 0x100) return Buffer.of(first | 24, Number(argument))
  const head = Buffer.alloc(9)
  head.writeBigUInt64BE(BigInt(argument), 1)
  if (argument < 0x10000) return Buffer.concat([Buffer.of(first | 25), head.subarray(7)])
  if (argument < 0x100000000) return Buffer.concat([Buffer.of(first | 26), head.subarray(5)])
  head[0] = first | 27
  return head
}

/** A map of indefinite length. */
export function encodeIndefiniteMap(entries: ReadonlyMap<CborValue, CborValue>): Encoded {
  const items = [...entries].flatMap(([key, value]) => [encodeItem(key), encodeItem(value)])
  return encoded(Buffer.concat([Buffer.of(0xbf), ...items, Buffer.of(0xff)]))
}

/** A map whose pairs may repeat a key. */
export function encodePairs(pairs: readonly (readonly [CborValue, CborValue])[]): Encoded {
  const items = pairs.flatMap(([key, value]) => [encodeItem(key), encodeItem(value)])
  return encoded(Buffer.concat([encodeHead(5, pairs.length), ...items]))
}

function encodeItem(value: CborValue): Buffer {
  if (value === null) return Buffer.of(0xf6)
  if (typeof value === 'boolean') return Buffer.of(value ? 0xf5 : 0xf4)
  if (typeof value === 'number' || typeof value === 'bigint') {
    return value < 0 ? encodeHead(1, -1n - BigInt(value)) : encodeHead(0, value)
  }
  if (typeof value === 'string') {
    const text = Buffer.from(value)
    return Buffer.concat([encodeHead(3, text.length), text])
  }
  if (value instanceof Uint8Array) return Buffer.concat([encodeHead(2, value.length), value])
  if (value instanceof Map) return Buffer.from(encodePairs([...value]).encoded)
  if ('encoded' in value) return Buffer.from(value.encoded)
  const items = value as readonly CborValue[]
  return Buffer.concat([encodeHead(4, items.length), ...items.map(encodeItem)])
}
