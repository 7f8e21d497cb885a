/** Maximum depth of nested arrays and maps. The outermost container is level 1. */
const CBOR_DEPTH_MAX = 16

/** The fault in an encoding: one word for each distinct check. */
export type CborFault =
  | 'truncated' //      ends inside an item, or states a length beyond the end
  | 'not_minimal' //    a head that also has a shorter form (RFC 8949 section 4.2.1)
  | 'reserved' //       additional information 28 to 30 (section 3)
  | 'tag' //            any tag
  | 'float' //          half, single or double precision
  | 'simple' //         a simple value other than false, true and null
  | 'chunked_string' // a string of indefinite length
  | 'indefinite' //     an array or map of indefinite length where this is not allowed
  | 'stray_break' //    a break outside an indefinite item, or in place of a value
  | 'too_deep' //       nesting beyond the limit
  | 'key_type' //       a map key that is neither text nor an integer
  | 'duplicate_key' //  a map key that occurs earlier in the same map
  | 'invalid_utf8' //   text that is not UTF-8

/**
 * CBOR that is not in the strict form. `path` (keys and indexes) leads to the map or array with the
 * fault.
 */
export class CborError extends Error {
  override readonly name = 'CborError'
  readonly fault: CborFault
  readonly offset: number
  readonly path: readonly (string | number)[]

  constructor(fault: CborFault, offset: number, path: readonly (string | number)[]) {
    super(`CBOR: ${fault.replaceAll('_', ' ')} at byte ${offset}`)
    this.fault = fault
    this.offset = offset
    this.path = path
  }
}

/** A decoded item, and the offset after it. */
type Decoded<Value> = { readonly value: Value; readonly end: number }

/**
 * Decodes the one CBOR item (RFC 8949) at `offset` in attacker-controlled `bytes`. Returns the item
 * and the offset after it. Accepts exactly what security modules write: minimal heads, definite
 * lengths, no tags, no floats, no simple values except false, true and null, keys that are text or
 * integers and unique, depth ≤ CBOR_DEPTH_MAX. `indefinite`: which maps may have indefinite length.
 * Maps become Map, byte strings become views of `bytes`, integers of eight bytes become bigint, and
 * other integers become number. The caller must refuse bytes after the item. Throws CborError. Time
 * is linear in the length.
 */
export function decodeCbor(
  bytes: Uint8Array,
  { offset = 0, indefinite = 'none' }: CborOptions = {},
): Decoded<unknown> {
  return readItem({ bytes, indefinite, path: [] }, offset, 1)
}

type CborOptions = {
  readonly offset?: number
  readonly indefinite?: 'none' | 'top' | 'all'
}

type Reader = {
  readonly bytes: Uint8Array
  readonly indefinite: 'none' | 'top' | 'all'
  readonly path: (string | number)[]
}

/** The first bytes of an item. `argument`: null for indefinite length, bigint for eight bytes. */
type Head = {
  readonly major: number
  readonly argument: number | bigint | null
  readonly end: number
}

const BREAK = 0xff

function readItem(reader: Reader, offset: number, depth: number): Decoded<unknown> {
  const head = readHead(reader, offset)
  switch (head.major) {
    case 0:
    case 1:
      return { value: integerOf(head), end: head.end }
    case 2:
      return readBytes(reader, head, offset)
    case 3:
      return readText(reader, head, offset)
    case 4:
      return readArray(reader, head, offset, depth)
    case 5:
      return readMap(reader, head, offset, depth)
    case 6:
      throw fault(reader, 'tag', offset)
    default:
      return readSimple(reader, head, offset)
  }
}

function readHead(reader: Reader, offset: number): Head {
  const { bytes } = reader
  const first = bytes[offset]
  if (first === undefined) throw fault(reader, 'truncated', offset)
  const major = first >> 5
  const info = first & 31
  if (info < 24) return { major, argument: info, end: offset + 1 }
  if (info > 27 && (info < 31 || !hasIndefiniteForm(major))) throw fault(reader, 'reserved', offset)
  if (info === 31) return { major, argument: null, end: offset + 1 }
  const width = 1 << (info - 24)
  const end = offset + 1 + width
  if (end > bytes.length) throw fault(reader, 'truncated', offset)
  if (major === 7) return { major, argument: info, end }
  const argument = readArgument(bytes.subarray(offset + 1, end))
  if (argument < minimumOf(width)) throw fault(reader, 'not_minimal', offset)
  return { major, argument, end }
}

/** True for strings, arrays, maps, and major type 7, whose indefinite form is the break. */
function hasIndefiniteForm(major: number): boolean {
  return major !== 0 && major !== 1 && major !== 6
}

/** The smallest value that needs an argument of 1, 2, 4 or 8 bytes after the first byte. */
function minimumOf(width: number): number {
  return width === 1 ? 24 : 2 ** (4 * width)
}

function readArgument(bytes: Uint8Array): number | bigint {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  if (bytes.length === 8) return view.getBigUint64(0)
  if (bytes.length === 4) return view.getUint32(0)
  return bytes.length === 2 ? view.getUint16(0) : view.getUint8(0)
}

/** The integer of an item of major type 0 or 1. These types have no indefinite form. */
function integerOf({ major, argument }: Head): number | bigint {
  const value = argument ?? 0
  if (major === 0) return value
  return typeof value === 'bigint' ? -1n - value : -1 - value
}

function readBytes(reader: Reader, { argument, end }: Head, offset: number): Decoded<Uint8Array> {
  if (argument === null) throw fault(reader, 'chunked_string', offset)
  if (argument > reader.bytes.length - end) throw fault(reader, 'truncated', offset)
  const after = end + Number(argument)
  return { value: reader.bytes.subarray(end, after), end: after }
}

function readText(reader: Reader, head: Head, offset: number): Decoded<string> {
  const { value, end } = readBytes(reader, head, offset)
  try {
    return { value: strictUtf8.decode(value), end }
  } catch {
    throw fault(reader, 'invalid_utf8', head.end)
  }
}

/** ignoreBOM keeps a leading U+FEFF. Without it, two different keys could look equal. */
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function readArray(
  reader: Reader,
  { argument, end }: Head,
  offset: number,
  depth: number,
): Decoded<readonly unknown[]> {
  if (depth > CBOR_DEPTH_MAX) throw fault(reader, 'too_deep', offset)
  if (argument === null) throw fault(reader, 'indefinite', offset)
  if (argument > reader.bytes.length - end) throw fault(reader, 'truncated', offset)
  const value: unknown[] = []
  let position = end
  for (let index = 0; index < Number(argument); index++) {
    reader.path.push(index)
    const item = readItem(reader, position, depth + 1)
    reader.path.pop()
    value.push(item.value)
    position = item.end
  }
  return { value, end: position }
}

function readMap(
  reader: Reader,
  { argument, end }: Head,
  offset: number,
  depth: number,
): Decoded<ReadonlyMap<unknown, unknown>> {
  if (depth > CBOR_DEPTH_MAX) throw fault(reader, 'too_deep', offset)
  const isFree = reader.indefinite === 'all' || (reader.indefinite === 'top' && depth === 1)
  if (argument === null && !isFree) throw fault(reader, 'indefinite', offset)
  if (argument !== null && argument > (reader.bytes.length - end) / 2)
    throw fault(reader, 'truncated', offset)
  const value = new Map<string | number | bigint, unknown>()
  let position = end
  for (let pair = 0; argument === null || pair < Number(argument); pair++) {
    if (argument === null && reader.bytes[position] === BREAK) return { value, end: position + 1 }
    const key = readKey(reader, position)
    if (value.has(key.value)) throw fault(reader, 'duplicate_key', position)
    reader.path.push(typeof key.value === 'bigint' ? String(key.value) : key.value)
    const item = readItem(reader, key.end, depth + 1)
    reader.path.pop()
    value.set(key.value, item.value)
    position = item.end
  }
  return { value, end: position }
}

/** Heads are minimal, so equal keys have equal encodings. */
function readKey(reader: Reader, offset: number): Decoded<string | number | bigint> {
  const head = readHead(reader, offset)
  if (head.major === 3) return readText(reader, head, offset)
  if (head.major > 1) throw fault(reader, keyFault(head), offset)
  return { value: integerOf(head), end: head.end }
}

function keyFault({ major, argument }: Head): CborFault {
  if (major === 7 && argument === null) return 'stray_break'
  return major === 6 ? 'tag' : 'key_type'
}

/** Keyed by additional information. */
const SIMPLE_VALUES: ReadonlyMap<unknown, boolean | null> = new Map([
  [20, false],
  [21, true],
  [22, null],
])

function readSimple(
  reader: Reader,
  { argument, end }: Head,
  offset: number,
): Decoded<boolean | null> {
  if (argument === null) throw fault(reader, 'stray_break', offset)
  const value = SIMPLE_VALUES.get(argument)
  if (value !== undefined) return { value, end }
  const isFloat = argument === 25 || argument === 26 || argument === 27
  throw fault(reader, isFloat ? 'float' : 'simple', offset)
}

function fault({ path }: Reader, kind: CborFault, offset: number): CborError {
  return new CborError(kind, offset, [...path])
}
