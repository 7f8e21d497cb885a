import { checkDerValue, DER_TAGS } from './der-value.ts'

/** Deepest nesting that is read. A certificate of a document needs 9. */
export const DER_DEPTH_MAX = 16

/** Bytes that are not the DER (X.690) of anything. `offset` counts from the start of what was being decoded. */
export class DerError extends Error {
  override readonly name = 'DerError'
  readonly offset: number

  constructor(expected: string, offset: number) {
    super(`DER: expected ${expected} at byte ${offset}`)
    this.offset = offset
  }
}

/** One element: identifier octet, whole encoding, contents, and for a constructed one its elements. */
export type DerNode = {
  readonly tag: number
  readonly encoding: Uint8Array<ArrayBuffer>
  readonly content: Uint8Array<ArrayBuffer>
  readonly children: readonly DerNode[]
  /** Where the encoding starts in the bytes given to decodeDer. */
  readonly offset: number
}

/**
 * Gives the element that attacker-controlled `bytes` are, the whole of them, with everything inside it. Accepts the
 * distinguished encoding only: definite, minimal lengths; each level fully consumed; canonical booleans, integers,
 * bit strings, object identifiers, times and text; sorted sets; no string in pieces. What octet and bit strings hold
 * is for the caller to decode. Throws DerError.
 */
export function decodeDer(bytes: Uint8Array<ArrayBuffer>): DerNode {
  const cursor = { bytes, offset: 0, end: bytes.length, depth: 0 }
  const node = decodeNode(cursor)
  if (cursor.offset !== bytes.length) throw new DerError('no trailing byte', cursor.offset)
  return node
}

/** Where the decoder stands. It moves, so that a certificate of sixty elements does not make sixty copies. */
type Cursor = {
  readonly bytes: Uint8Array<ArrayBuffer>
  offset: number
  /** End of the element that is being decoded. */
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
  if ((tag & CLASS) === 0) checkUniversal(node)
  return node
}

type Span = Pick<DerNode, 'tag' | 'offset' | 'children'> & { readonly start: number; readonly stop: number }

/** A class for its getters: most elements are never looked at as bytes, and views are what decoding costs most. */
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
  for (let index = 0; index < count; index++) length = length * 256 + nextByte(cursor, 'a whole length')
  if (length < 0x80 || length < 2 ** (8 * (count - 1))) throw new DerError('a minimal length', offset)
  return length
}

function decodeChildren(cursor: Cursor, stop: number): readonly DerNode[] {
  const { end } = cursor
  cursor.end = stop
  cursor.depth += 1
  if (cursor.depth >= DER_DEPTH_MAX) throw new DerError(`depth of at most ${DER_DEPTH_MAX}`, cursor.offset)
  const children: DerNode[] = []
  while (cursor.offset < stop) children.push(decodeNode(cursor))
  cursor.end = end
  cursor.depth -= 1
  return children
}

function checkUniversal(node: DerNode): void {
  if (node.tag === DER_TAGS.set) {
    checkSorted(node)
  } else if (node.tag !== DER_TAGS.sequence) {
    const expected = checkDerValue(node.tag, node.content)
    if (expected !== null) throw new DerError(expected, node.offset)
  }
}

/** SET OF is sorted by encoding (X.690 section 11.6). */
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
