/** Maximum depth of nested elements. A certificate in a document needs 9. */
const DER_DEPTH_MAX = 16

/** Bytes that are not valid DER (X.690). `offset` counts from the first decoded byte. */
export class DerError extends Error {
  override readonly name = 'DerError'
  readonly offset: number

  constructor(expected: string, offset: number) {
    super(`DER: expected ${expected} at byte ${offset}`)
    this.offset = offset
  }
}

/**
 * One element: identifier octet, whole encoding, content. A constructed element also has the inner
 * elements.
 */
export type DerNode = {
  readonly tag: number
  readonly encoding: Uint8Array<ArrayBuffer>
  readonly content: Uint8Array<ArrayBuffer>
  readonly children: readonly DerNode[]
  /** Where the encoding starts in the bytes that decodeDer decodes. */
  readonly offset: number
}

/**
 * Decodes the one element in attacker-controlled `bytes`, with all elements inside. Accepts only
 * the distinguished encoding: definite, minimal lengths; no unread bytes at any level; canonical
 * booleans, integers, bit strings, object identifiers, times and text; sorted sets; no string in
 * pieces. Does not decode the content of octet and bit strings. `allowsEnumerated`: also accepts
 * ENUMERATED, a type that certificates do not use. Throws DerError.
 */
export function decodeDer(bytes: Uint8Array<ArrayBuffer>, allowsEnumerated = false): DerNode {
  const cursor = { bytes, allowsEnumerated, offset: 0, end: bytes.length, depth: 0 }
  const node = decodeNode(cursor)
  if (cursor.offset !== bytes.length) throw new DerError('no trailing byte', cursor.offset)
  return node
}

type Cursor = {
  readonly bytes: Uint8Array<ArrayBuffer>
  readonly allowsEnumerated: boolean
  offset: number
  /** End of the current element. */
  end: number
  depth: number
}

const CONSTRUCTED = 0x20
const CLASS = 0xc0

function decodeNode(cursor: Cursor): DerNode {
  const { bytes, offset, end } = cursor
  const tag = nextByte(cursor, 'an element')
  if ((tag & 0x1f) === 0x1f) throw new DerError('a tag number below 31', offset)
  const length = decodeLength(cursor)
  const start = cursor.offset
  const stop = start + length
  if (stop > end) throw new DerError('a length within its parent', offset + 1)
  const children = (tag & CONSTRUCTED) === 0 ? NO_CHILDREN : decodeChildren(cursor, stop)
  const node = new Element(bytes, { tag, offset, start, stop, children })
  cursor.offset = stop
  if ((tag & CLASS) === 0) checkUniversal(node, cursor)
  return node
}

type Span = Pick<DerNode, 'tag' | 'offset' | 'children'> & {
  readonly start: number
  readonly stop: number
}

/**
 * A class, so that getters create byte views only when needed: views are the main cost of decoding.
 */
class Element implements DerNode {
  readonly tag: number
  readonly offset: number
  readonly children: readonly DerNode[]
  readonly #bytes: Uint8Array<ArrayBuffer>
  readonly #start: number
  readonly #stop: number

  constructor(bytes: Uint8Array<ArrayBuffer>, { tag, offset, start, stop, children }: Span) {
    this.tag = tag
    this.offset = offset
    this.children = children
    this.#bytes = bytes
    this.#start = start
    this.#stop = stop
  }

  get encoding(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(this.offset, this.#stop)
  }

  get content(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(this.#start, this.#stop)
  }
}

const NO_CHILDREN: readonly DerNode[] = []

function nextByte(cursor: Cursor, expected: string): number {
  const byte = cursor.bytes[cursor.offset]
  if (byte === undefined || cursor.offset >= cursor.end) throw new DerError(expected, cursor.offset)
  cursor.offset += 1
  return byte
}

function decodeLength(cursor: Cursor): number {
  const { offset } = cursor
  const first = nextByte(cursor, 'a length')
  if (first < 0x80) return first
  const count = first & 0x7f
  if (count < 1 || count > 3) throw new DerError('a definite length of at most three bytes', offset)
  let length = 0
  for (let index = 0; index < count; index++)
    length = length * 256 + nextByte(cursor, 'a whole length')
  if (length < 0x80 || length < 2 ** (8 * (count - 1)))
    throw new DerError('a minimal length', offset)
  return length
}

function decodeChildren(cursor: Cursor, stop: number): readonly DerNode[] {
  const { end } = cursor
  cursor.end = stop
  cursor.depth += 1
  if (cursor.depth >= DER_DEPTH_MAX)
    throw new DerError(`depth of at most ${DER_DEPTH_MAX}`, cursor.offset)
  const children: DerNode[] = []
  while (cursor.offset < stop) children.push(decodeNode(cursor))
  cursor.end = end
  cursor.depth -= 1
  return children
}

const ENUMERATED = 0x0a

function checkUniversal(node: DerNode, { allowsEnumerated }: Cursor): void {
  if (node.tag === DER_TAGS.set) {
    checkSorted(node)
  } else if (node.tag !== DER_TAGS.sequence) {
    const isEnumerated = allowsEnumerated && node.tag === ENUMERATED
    const expected = checkDerValue(isEnumerated ? DER_TAGS.integer : node.tag, node.content)
    if (expected !== null) throw new DerError(expected, node.offset)
  }
}

/** Checks that the elements of a SET OF are sorted by encoding (X.690 section 11.6). */
function checkSorted({ children, offset }: DerNode): void {
  for (const [index, child] of children.entries()) {
    const before = children[index - 1]
    if (before && compareBytes(before.encoding, child.encoding) > 0) {
      throw new DerError('a sorted set', offset)
    }
  }
}

function compareBytes(left: Uint8Array, right: Uint8Array): number {
  for (let index = 0; index < Math.max(left.length, right.length); index++) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0)
    if (difference !== 0) return difference
  }
  return 0
}

/** Identifier octets (X.690 section 8.1.2) that occur in certificates. */
export const DER_TAGS = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  objectIdentifier: 0x06,
  utf8String: 0x0c,
  printableString: 0x13,
  teletexString: 0x14,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  bmpString: 0x1e,
  sequence: 0x30,
  set: 0x31,
} as const

/**
 * Returns null if the content is the distinguished encoding (X.690 sections 8, 10 and 11) of a type
 * that certificates use. Otherwise returns what was expected.
 */
function checkDerValue(tag: number, content: Uint8Array): string | null {
  switch (tag) {
    case DER_TAGS.boolean:
      return isBoolean(content) ? null : 'a BOOLEAN of 00 or ff'
    case DER_TAGS.integer:
      return isInteger(content) ? null : 'a minimal INTEGER'
    case DER_TAGS.bitString:
      return isBitString(content) ? null : 'a BIT STRING with unused bits zero'
    case DER_TAGS.octetString:
      return null
    case DER_TAGS.null:
      return content.length === 0 ? null : 'an empty NULL'
    case DER_TAGS.objectIdentifier:
      return isObjectIdentifier(content) ? null : 'a minimal OBJECT IDENTIFIER'
    case DER_TAGS.utf8String:
      return isUtf8(content) ? null : 'UTF-8 in UTF8String'
    case DER_TAGS.printableString:
      return PRINTABLE.test(latin1(content)) ? null : 'the characters of PrintableString'
    case DER_TAGS.teletexString:
      return null
    case DER_TAGS.ia5String:
      return content.every((byte) => byte < 0x80) ? null : 'ASCII in IA5String'
    case DER_TAGS.utcTime:
    case DER_TAGS.generalizedTime:
      return decodeTime(tag, content) === null ? 'a time as YY[YY]MMDDhhmmssZ' : null
    case DER_TAGS.bmpString:
      return content.length % 2 === 0 ? null : 'whole characters in BMPString'
    default:
      return 'a type that certificates are made of'
  }
}

/**
 * Unix milliseconds of a UTCTime or GeneralizedTime in the form of RFC 5280 section 4.1.2.5
 * (seconds, Zulu, no fraction). Null for any other form or a day that does not exist.
 */
export function decodeTime(tag: number, content: Uint8Array): number | null {
  const yearDigits = tag === DER_TAGS.utcTime ? 2 : 4
  if (content.length !== yearDigits + 11 || content.at(-1) !== ZULU) return null
  const pairs = [0, 1, 2, 3, 4, 5].map((index) => pairAt(content, yearDigits - 2 + 2 * index))
  const [low = -1, month = -1, day = -1, hour = -1, minute = -1, second = -1] = pairs
  const century = yearDigits === 4 ? pairAt(content, 0) : low < 50 ? 20 : 19
  if (century < 1 || pairs.includes(-1) || hour > 23 || minute > 59 || second > 59) return null
  const timeMs = Date.UTC(century * 100 + low, month - 1, day, hour, minute, second)
  const date = new Date(timeMs)
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day ? timeMs : null
}

/** The dotted form of an OBJECT IDENTIFIER. checkDerValue must have accepted the content. */
export function decodeObjectIdentifier(content: Uint8Array): string {
  let text = ''
  let arc = 0
  for (const byte of content) {
    if (arc > ARC_EXACT_MAX) return decodeWideIdentifier(content)
    arc = arc * 128 + (byte & 0x7f)
    if (byte >= 0x80) continue
    text += text === '' ? firstArcs(BigInt(arc)) : `.${arc}`
    arc = 0
  }
  return text
}

/** An arc up to this value is still exact after seven more bits are added. */
const ARC_EXACT_MAX = 2 ** 46

/**
 * Decodes very large arcs. No registered identifier has them, but a certificate can contain them.
 */
function decodeWideIdentifier(content: Uint8Array): string {
  let text = ''
  let arc = 0n
  for (const byte of content) {
    arc = arc * 128n + BigInt(byte & 0x7f)
    if (byte >= 0x80) continue
    text += text === '' ? firstArcs(arc) : `.${arc}`
    arc = 0n
  }
  return text
}

/** The first two arcs are encoded in one number (X.690 section 8.19.4). */
function firstArcs(joined: bigint): string {
  const root = joined < 80n ? joined / 40n : 2n
  return `${root}.${joined - root * 40n}`
}

/** The content as text: each byte is one character (Windows-1252, a superset of ASCII). */
export function latin1(content: Uint8Array): string {
  return oneByte.decode(content)
}

const ZULU = 0x5a

/** The two-digit number at `offset`, or -1 if there are not two digits. */
function pairAt(content: Uint8Array, offset: number): number {
  const tens = (content[offset] ?? 0) - 0x30
  const units = (content[offset + 1] ?? 0) - 0x30
  return tens >= 0 && tens <= 9 && units >= 0 && units <= 9 ? 10 * tens + units : -1
}

const PRINTABLE = /^[A-Za-z0-9 '()+,\-./:=?]*$/
const oneByte = new TextDecoder('latin1')
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function isBoolean(content: Uint8Array): boolean {
  return content.length === 1 && (content[0] === 0 || content[0] === 0xff)
}

function isInteger(content: Uint8Array): boolean {
  const first = content[0]
  const second = content[1] ?? 0
  if (first === undefined) return false
  const isPadded = (first === 0 && second < 0x80) || (first === 0xff && second >= 0x80)
  return content.length === 1 || !isPadded
}

function isBitString(content: Uint8Array): boolean {
  const unused = content[0]
  if (unused === undefined || unused > 7) return false
  if (content.length === 1) return unused === 0
  return ((content.at(-1) ?? 0) & ((1 << unused) - 1)) === 0
}

function isObjectIdentifier(content: Uint8Array): boolean {
  let isFirstOfArc = true
  for (const byte of content) {
    if (isFirstOfArc && byte === 0x80) return false
    isFirstOfArc = byte < 0x80
  }
  return content.length > 0 && isFirstOfArc
}

function isUtf8(content: Uint8Array): boolean {
  try {
    strictUtf8.decode(content)
    return true
  } catch {
    return false
  }
}
