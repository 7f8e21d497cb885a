import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  CONTENT_HEAD_BYTES,
  type ContentIdentity,
  contentKeyId,
  createContentCipher,
} from '#src/storage/content-cipher.ts'
import { parseContentKeys } from '#src/storage/content-keys.ts'
import { ContentUnavailable } from '#src/storage/errors.ts'

const IDENTITY = ['records', 'one', 'ab'] as const

function cipherOf(...keys: readonly Uint8Array[]) {
  const parsed = parseContentKeys(keys.map((key) => Buffer.from(key).toString('hex')).join('\n'))
  if (typeof parsed === 'string') throw new Error(parsed)
  return createContentCipher(parsed)
}

function faultOf(open: () => unknown): string {
  try {
    open()
  } catch (error) {
    if (error instanceof ContentUnavailable) return error.code
    throw error
  }
  return 'none'
}

const cipher = cipherOf(randomBytes(32))

it('the content cipher gives back any texts, none and empty ones too, and shows none of them', () => {
  const texts = fc.array(fc.string({ unit: 'grapheme', maxLength: 300 }), { maxLength: 4 })
  fc.assert(
    fc.property(texts, fc.array(fc.string(), { minLength: 1 }), (parts, [table = '', ...names]) => {
      const identity: ContentIdentity = [table, ...names]
      const sealed = cipher.seal(parts, identity)
      expect(cipher.open(sealed, identity)).toEqual(parts)
      expect(cipher.seal(parts, identity)).not.toEqual(sealed)
      for (const part of parts.filter(({ length }) => length > 8))
        expect(Buffer.from(sealed).includes(part)).toBe(false)
    }),
  )
})

it('sealed content opens for no other identity, however its names are cut', () => {
  const sealed = cipher.seal(['asked', 'answered'], IDENTITY)
  const others: readonly ContentIdentity[] = [
    ['records', 'two', 'ab'],
    ['records', 'one'],
    ['records', 'onea', 'b'],
    ['idempotency_keys', 'one', 'ab'],
    ['records', 'one', 'ab', ''],
    ['records', 'one","ab'],
  ]
  for (const other of others)
    expect(faultOf(() => cipher.open(sealed, other))).toBe('content_unreadable')
})

it('sealed content opens with no bit changed, no byte missing and none added', () => {
  const sealed = cipher.seal(['asked', 'answered'], IDENTITY)
  const open = (bytes: Uint8Array) => faultOf(() => cipher.open(bytes, IDENTITY))
  for (let at = 0; at < sealed.length * 8; at++) {
    const changed = Uint8Array.from(sealed)
    changed[at >> 3] = (changed[at >> 3] ?? 0) ^ (1 << (at & 7))
    const isKey = at >> 3 >= 1 && at >> 3 < CONTENT_HEAD_BYTES
    expect(open(changed)).toBe(isKey ? 'content_key_missing' : 'content_unreadable')
  }
  for (let length = 0; length < sealed.length; length++)
    expect(open(sealed.subarray(0, length))).toBe('content_unreadable')
  expect(open(Buffer.concat([sealed, Buffer.alloc(1)]))).toBe('content_unreadable')
})

it('the content cipher seals under the last key, opens under each, and names a key that is not there', () => {
  const [old, next] = [randomBytes(32), randomBytes(32)]
  const sealed = cipherOf(old).seal(['asked'], IDENTITY)
  const both = cipherOf(old, next)
  expect(both.open(sealed, IDENTITY)).toEqual(['asked'])
  expect(contentKeyId(both.seal(['asked'], IDENTITY))).toBe(cipherOf(next).keyIds[0])
  expect(faultOf(() => cipherOf(next).open(sealed, IDENTITY))).toBe('content_key_missing')
})

it('sealed content does not open under another key that is said to be the one', () => {
  const sealed = Buffer.from(cipherOf(randomBytes(32)).seal(['asked'], IDENTITY))
  const forged = Buffer.concat([cipher.head, sealed.subarray(CONTENT_HEAD_BYTES)])
  expect(faultOf(() => cipher.open(forged, IDENTITY))).toBe('content_unreadable')
})
