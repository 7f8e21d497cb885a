import { concatBytes } from '../bytes.ts'
import { FormatError } from '../errors.ts'

/** A value of RLP: a byte string or a list of values. */
export type RlpItem = Uint8Array | readonly RlpItem[]

/** Maximum depth of nested lists. A receipt, the deepest value read here, has 4. */
export const RLP_DEPTH_MAX = 16

/**
 * Decodes attacker-controlled `bytes`, the RLP encoding of one value (Ethereum yellow paper,
 * appendix B). Every value has one encoding, so no two byte strings decode to the same value. Byte
 * strings in the result are views into `bytes`.
 *
 * Throws FormatError `invalid_rlp`: truncated; bytes after the value; a single byte below 0x80 with
 * a prefix; a length in the long form that fits the short one, or with leading zeros; lists nested
 * over RLP_DEPTH_MAX.
 */
export function decodeRlp(bytes: Uint8Array): RlpItem {
  const { item, end } = readItem({ bytes, limit: bytes.length }, { start: 0, depth: 0 })
  if (end !== bytes.length) throw invalid(`${bytes.length - end} bytes after the value`)
  return item
}

export function encodeRlp(item: RlpItem): Uint8Array {
  if (item instanceof Uint8Array) {
    const [first = 0x80] = item
    return item.length === 1 && first < 0x80
      ? item
      : concatBytes(encodePrefix(0x80, item.length), item)
  }
  const payload = concatBytes(...item.map(encodeRlp))
  return concatBytes(encodePrefix(0xc0, payload.length), payload)
}

/** The RLP bytes of a number (0 to 2^53-1): big-endian, without leading zeros. Empty for 0. */
export function encodeRlpNumber(value: number): Uint8Array {
  const bytes: number[] = []
  for (let rest = value; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256)
  return Uint8Array.from(bytes)
}

/** Throws FormatError `invalid_rlp` naming `what`. */
export function rlpList(item: RlpItem | undefined, what: string): readonly RlpItem[] {
  if (item === undefined || item instanceof Uint8Array)
    throw invalid(`expected ${what} to be a list`)
  return item
}

/**
 * With `length`, the byte string must have exactly this many bytes. Throws FormatError
 * `invalid_rlp` naming `what`.
 */
export function rlpBytes(item: RlpItem | undefined, what: string, length?: number): Uint8Array {
  if (!(item instanceof Uint8Array)) throw invalid(`expected ${what} to be a byte string`)
  if (length !== undefined && item.length !== length)
    throw invalid(`expected ${what} to be ${length} bytes, got ${item.length}`)
  return item
}

/**
 * A number of at most 32 bytes without leading zeros. Throws FormatError `invalid_rlp` naming
 * `what`.
 */
export function rlpUint256(item: RlpItem | undefined, what: string): bigint {
  const bytes = rlpBytes(item, what)
  if (bytes.length > UINT256_BYTES || bytes[0] === 0)
    throw invalid(
      `expected ${what} to be a number of at most ${UINT256_BYTES} bytes, without leading zeros`,
    )
  return bytes.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n)
}

/**
 * A number of 0 to 2^53-1 without leading zeros. Throws FormatError `invalid_rlp` naming `what`.
 */
export function rlpNumber(item: RlpItem | undefined, what: string): number {
  const value = Number(rlpUint256(item, what))
  if (!Number.isSafeInteger(value)) throw invalid(`expected ${what} to be at most 2^53-1`)
  return value
}

const UINT256_BYTES = 32
/** Longest payload whose length is in the prefix byte itself. */
const SHORT_BYTES_MAX = 55
/** Maximum bytes of a length. A double holds six bytes exactly, and no memory is that large. */
const LENGTH_BYTES_MAX = 6

type Source = { readonly bytes: Uint8Array; readonly limit: number }
type Place = { readonly start: number; readonly depth: number }
type Read<Value> = { readonly item: Value; readonly end: number }

function readItem(source: Source, { start, depth }: Place): Read<RlpItem> {
  if (start >= source.limit) throw invalid('truncated')
  const prefix = source.bytes[start] ?? 0
  if (prefix < 0x80) return { item: source.bytes.subarray(start, start + 1), end: start + 1 }
  const isList = prefix >= 0xc0
  const { item: length, end: begin } = readLength(source, { start, base: isList ? 0xc0 : 0x80 })
  const end = begin + length
  if (end > source.limit) throw invalid('truncated')
  if (isList)
    return { item: readList({ ...source, limit: end }, { start: begin, depth: depth + 1 }), end }
  if (length === 1 && (source.bytes[begin] ?? 0) < 0x80)
    throw invalid('a byte below 0x80 stands for itself, without a prefix')
  return { item: source.bytes.subarray(begin, end), end }
}

function readList(source: Source, { start, depth }: Place): readonly RlpItem[] {
  if (depth > RLP_DEPTH_MAX) throw invalid(`more than ${RLP_DEPTH_MAX} lists inside each other`)
  const items: RlpItem[] = []
  let next = start
  while (next < source.limit) {
    const { item, end } = readItem(source, { start: next, depth })
    items.push(item)
    next = end
  }
  return items
}

/** Length of the payload after the prefix at `start`. The payload begins at `end`. */
function readLength(
  { bytes, limit }: Source,
  { start, base }: { readonly start: number; readonly base: number },
): Read<number> {
  const short = (bytes[start] ?? 0) - base
  if (short <= SHORT_BYTES_MAX) return { item: short, end: start + 1 }
  const size = short - SHORT_BYTES_MAX
  const end = start + 1 + size
  if (size > LENGTH_BYTES_MAX || end > limit) throw invalid('truncated')
  if (bytes[start + 1] === 0) throw invalid('a length with leading zeros')
  const length = bytes.subarray(start + 1, end).reduce((value, byte) => value * 256 + byte, 0)
  if (length <= SHORT_BYTES_MAX) throw invalid('a length in the long form that fits the short one')
  return { item: length, end }
}

function encodePrefix(base: number, length: number): Uint8Array {
  if (length <= SHORT_BYTES_MAX) return Uint8Array.of(base + length)
  const bytes = encodeRlpNumber(length)
  return concatBytes(Uint8Array.of(base + SHORT_BYTES_MAX + bytes.length), bytes)
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_rlp', `RLP: ${message}`)
}
