/** Deepest nesting of arrays and maps that is accepted; the outermost container is depth 1. */
const CBOR_DEPTH_MAX = 16

/** What is wrong with an encoding, one word for each distinct check. */
export type CborFault =
  | 'truncated' //      ends inside an item, or claims more than there is
  | 'not_minimal' //    a head that would fit a shorter form (RFC 8949 section 4.2.1)
  | 'reserved' //       additional information 28 to 30 (section 3)
  | 'tag' //            any tag
  | 'float' //          half, single or double precision
  | 'simple' //         a simple value other than false, true and null
  | 'chunked_string' // a string of indefinite length
  | 'indefinite' //     an array or map of indefinite length where none is allowed
  | 'stray_break' //    a break that ends nothing, or that stands for a value
  | 'too_deep' //       nesting beyond the limit
  | 'key_type' //       a map key that is neither text nor an integer
  | 'duplicate_key' //  a map key that its map has already
  | 'invalid_utf8' //   text that is not UTF-8

/**
 * CBOR that is not in the strict form. `path` leads to the map or array it is in, by keys and
 * indexes.
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

/**
 * Walks the one CBOR item (RFC 8949) at `offset` of attacker-controlled `bytes` and gives the
 * offset after it. It accepts exactly what security modules write: minimal heads, definite lengths,
 * no tags, no floats, no simple values but false, true and null, keys that are text or integers and
 * unique, depth ≤ CBOR_DEPTH_MAX. `indefiniteTop` allows indefinite length for the outermost item
 * if it is a map, and for nothing else. Whoever decodes the item afterwards, however leniently, can
 * read it in one way only. Bytes after the item are the caller's to refuse. Throws CborError. Time
 * is linear in the length.
 */
export function scanCbor(
  bytes: Uint8Array,
  { offset, indefiniteTop }: { readonly offset: number; readonly indefiniteTop: boolean },
): number {
  return scanItem({ bytes, indefiniteTop, path: [] }, offset, 1)
}

type Scan = {
  readonly bytes: Uint8Array
  readonly indefiniteTop: boolean
  readonly path: (string | number)[]
}

/**
 * The first bytes of an item. `argument` is null for indefinite length, and a bigint only beyond
 * 2^53-1.
 */
type Head = {
  readonly major: number
  readonly argument: number | bigint | null
  readonly end: number
}

const BREAK = 0xff

function scanItem(scan: Scan, offset: number, depth: number): number {
  const head = scanHead(scan, offset)
  switch (head.major) {
    case 0:
    case 1:
      return head.end
    case 2:
      return endOfString(scan, head, offset)
    case 3: {
      const end = endOfString(scan, head, offset)
      scanText(scan, head.end, end)
      return end
    }
    case 4:
      return scanArray(scan, head, offset, depth)
    case 5:
      return scanMap(scan, head, offset, depth)
    case 6:
      throw fault(scan, 'tag', offset)
    default:
      return scanSimple(scan, head, offset)
  }
}

function scanHead(scan: Scan, offset: number): Head {
  const { bytes } = scan
  const first = bytes[offset]
  if (first === undefined) throw fault(scan, 'truncated', offset)
  const major = first >> 5
  const info = first & 31
  if (info < 24) return { major, argument: info, end: offset + 1 }
  if (info > 27 && (info < 31 || !hasIndefiniteForm(major))) throw fault(scan, 'reserved', offset)
  if (info === 31) return { major, argument: null, end: offset + 1 }
  const width = 1 << (info - 24)
  const end = offset + 1 + width
  if (end > bytes.length) throw fault(scan, 'truncated', offset)
  if (major === 7) return { major, argument: info, end }
  const argument = readArgument(bytes, offset + 1, width)
  if (argument < minimumOf(width)) throw fault(scan, 'not_minimal', offset)
  return { major, argument, end }
}

/** Strings, arrays and maps; for major type 7 it is the break. */
function hasIndefiniteForm(major: number): boolean {
  return major !== 0 && major !== 1 && major !== 6
}

/** The smallest value that needs an argument of 1, 2, 4 or 8 bytes after the first byte. */
function minimumOf(width: number): number {
  return width === 1 ? 24 : 2 ** (4 * width)
}

function readArgument(bytes: Uint8Array, offset: number, width: number): number | bigint {
  let value = 0
  for (let index = 0; index < Math.min(width, 4); index++)
    value = value * 256 + (bytes[offset + index] ?? 0)
  if (width < 8) return value
  const low = readArgument(bytes, offset + 4, 4)
  const exact = BigInt(value) * 0x100000000n + BigInt(low)
  return exact <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(exact) : exact
}

function endOfString(scan: Scan, { argument, end }: Head, offset: number): number {
  if (argument === null) throw fault(scan, 'chunked_string', offset)
  if (argument > scan.bytes.length - end) throw fault(scan, 'truncated', offset)
  return end + Number(argument)
}

function scanText({ bytes, path }: Scan, start: number, end: number): string {
  try {
    return strictUtf8.decode(bytes.subarray(start, end))
  } catch {
    throw new CborError('invalid_utf8', start, [...path])
  }
}

/** ignoreBOM keeps a leading U+FEFF in the text, so that no two different keys look the same. */
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function scanArray(scan: Scan, head: Head, offset: number, depth: number): number {
  if (depth > CBOR_DEPTH_MAX) throw fault(scan, 'too_deep', offset)
  if (head.argument === null) throw fault(scan, 'indefinite', offset)
  if (head.argument > scan.bytes.length - head.end) throw fault(scan, 'truncated', offset)
  let position = head.end
  for (let index = 0; index < Number(head.argument); index++) {
    scan.path.push(index)
    position = scanItem(scan, position, depth + 1)
    scan.path.pop()
  }
  return position
}

function scanMap(scan: Scan, head: Head, offset: number, depth: number): number {
  if (depth > CBOR_DEPTH_MAX) throw fault(scan, 'too_deep', offset)
  const { argument } = head
  if (argument === null && !(scan.indefiniteTop && depth === 1))
    throw fault(scan, 'indefinite', offset)
  if (argument !== null && argument > (scan.bytes.length - head.end) / 2) {
    throw fault(scan, 'truncated', offset)
  }
  const keys = new Set<string | number | bigint>()
  let position = head.end
  for (let pair = 0; argument === null || pair < Number(argument); pair++) {
    if (argument === null && scan.bytes[position] === BREAK) return position + 1
    const key = scanKey(scan, position)
    if (keys.has(key.value)) throw fault(scan, 'duplicate_key', position)
    keys.add(key.value)
    scan.path.push(typeof key.value === 'bigint' ? String(key.value) : key.value)
    position = scanItem(scan, key.end, depth + 1)
    scan.path.pop()
  }
  return position
}

/**
 * Heads are minimal, so equal integers and equal text are equal encodings and the other way round.
 */
function scanKey(scan: Scan, offset: number): { value: string | number | bigint; end: number } {
  const head = scanHead(scan, offset)
  if (head.major === 3) {
    const end = endOfString(scan, head, offset)
    return { value: scanText(scan, head.end, end), end }
  }
  if (head.major > 1) throw fault(scan, keyFault(head), offset)
  const argument = head.argument ?? 0
  if (head.major === 0) return { value: argument, end: head.end }
  const negative = -1n - BigInt(argument)
  const safe = negative >= BigInt(Number.MIN_SAFE_INTEGER)
  return { value: safe ? Number(negative) : negative, end: head.end }
}

function keyFault({ major, argument }: Head): CborFault {
  if (major === 7 && argument === null) return 'stray_break'
  return major === 6 ? 'tag' : 'key_type'
}

function scanSimple(scan: Scan, { argument, end }: Head, offset: number): number {
  if (argument === null) throw fault(scan, 'stray_break', offset)
  if (argument === 20 || argument === 21 || argument === 22) return end
  const isFloat = argument === 25 || argument === 26 || argument === 27
  throw fault(scan, isFloat ? 'float' : 'simple', offset)
}

function fault({ path }: Scan, kind: CborFault, offset: number): CborError {
  return new CborError(kind, offset, [...path])
}
