import { isAscii } from 'node:buffer'
import type { JsonSize } from '#attestation/json/json-size.ts'

/**
 * Bytes of memory for each object or list, each member and each item, from parsing to sealing, with
 * the canonical text and temporary data. The smallest heap that can parse and hash a million values
 * (Node.js 24) takes, per value: 124 for an empty object in an array, 55 to 93 for an item, 140 for
 * a member of one large object, 320 for an object with a member of a unique name.
 */
const CONTAINER_BYTES = 80
const MEMBER_BYTES = 200
const ITEM_BYTES = 96

/** Bytes of memory for a byte of text: received text, decoded text, strings, canonical text. */
const TEXT_FACTOR = 4

/** TEXT_FACTOR for a text with other characters than ASCII: each character takes two bytes. */
const WIDE_TEXT_FACTOR = 8

/**
 * Bytes of memory for each UTF-16 unit of a kept string and its canonical text, in which one unit
 * can become six.
 */
const KEPT_FACTOR = 6

/**
 * Returns the memory that a JSON text takes until sealing, bytes. `text` is UTF-8 or decoded, and
 * `size` is the size of its JSON. The result is never too low.
 */
export function weighJson(text: Uint8Array | string, size: JsonSize): number {
  const utf8Bytes = Buffer.byteLength(text)
  const isPlain = typeof text === 'string' ? utf8Bytes === text.length : isAscii(text)
  return utf8Bytes * (isPlain ? TEXT_FACTOR : WIDE_TEXT_FACTOR) + weighSize(size)
}

/** Returns the memory of a sealed text, bytes: one per character, two if any is not ASCII. */
export function weighString(text: string): number {
  const utf8Bytes = Buffer.byteLength(text)
  return utf8Bytes === text.length ? utf8Bytes : Math.max(utf8Bytes, 2 * text.length)
}

/**
 * Measures an assembly of maps, arrays, objects and strings: its current size, and its memory until
 * sealing, bytes.
 */
export function weighAssembly(value: unknown): { readonly size: JsonSize; readonly bytes: number } {
  const found = { containers: 0, members: 0, items: 0, units: 0 }
  count(value, found)
  const { units, ...size } = found
  return { size, bytes: weighSize(size) + units * KEPT_FACTOR }
}

function count(
  value: unknown,
  found: { containers: number; members: number; items: number; units: number },
): void {
  if (typeof value === 'string') found.units += value.length
  if (typeof value !== 'object' || value === null) return
  found.containers++
  if (Array.isArray(value) || value instanceof Set) {
    for (const item of value) {
      found.items++
      count(item, found)
    }
    return
  }
  for (const [name, member] of value instanceof Map ? value : Object.entries(value)) {
    found.members++
    count(name, found)
    count(member, found)
  }
}

function weighSize({ containers, members, items }: JsonSize): number {
  return containers * CONTAINER_BYTES + members * MEMBER_BYTES + items * ITEM_BYTES
}
