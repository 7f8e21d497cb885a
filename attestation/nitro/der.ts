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
  const node = decodeNode({ bytes, offset: 0, end: bytes.length, depth: 1 })
  if (node.encoding.length !== bytes.length) throw new DerError('no trailing byte', node.encoding.length)
  return node
}

type Window = {
  readonly bytes: Uint8Array<ArrayBuffer>
  readonly offset: number
  readonly end: number
  readonly depth: number
}

const CONSTRUCTED = 0x20
const CLASS = 0xc0

function decodeNode({ bytes, offset, end, depth }: Window): DerNode {
  const tag = bytes[offset]
  if (tag === undefined || offset >= end) throw new DerError('an element', offset)
  if ((tag & 0x1f) === 0x1f) throw new DerError('a tag number below 31', offset)
  const { start, length } = decodeLength({ bytes, offset: offset + 1, end, depth })
  const stop = start + length
  if (stop > end) throw new DerError('a length within its parent', offset + 1)
  const isConstructed = (tag & CONSTRUCTED) !== 0
  if (isConstructed && depth >= DER_DEPTH_MAX) throw new DerError(`depth of at most ${DER_DEPTH_MAX}`, offset)
  const node: DerNode = {
    tag,
    encoding: bytes.subarray(offset, stop),
    content: bytes.subarray(start, stop),
    children: isConstructed ? decodeChildren({ bytes, offset: start, end: stop, depth: depth + 1 }) : [],
    offset,
  }
  if ((tag & CLASS) === 0) checkUniversal(node)
  return node
}

function decodeLength({ bytes, offset, end }: Window): { start: number; length: number } {
  const first = bytes[offset]
  if (first === undefined || offset >= end) throw new DerError('a length', offset)
  if (first < 0x80) return { start: offset + 1, length: first }
  const count = first & 0x7f
  if (count < 1 || count > 3) throw new DerError('a definite length of at most three bytes', offset)
  let length = 0
  for (let index = 1; index <= count; index++) {
    const digit = bytes[offset + index]
    if (digit === undefined || offset + index >= end) throw new DerError('a whole length', offset)
    length = length * 256 + digit
  }
  if (length < 0x80 || length < 2 ** (8 * (count - 1))) throw new DerError('a minimal length', offset)
  return { start: offset + 1 + count, length }
}

function decodeChildren(window: Window): readonly DerNode[] {
  const children: DerNode[] = []
  let offset = window.offset
  while (offset < window.end) {
    const child = decodeNode({ ...window, offset })
    children.push(child)
    offset += child.encoding.length
  }
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
