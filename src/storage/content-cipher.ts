import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import { ContentUnavailable } from './errors.ts'

/*
 * Form of sealed content, version 1:
 *
 *   1 byte   version, 1
 *   8 bytes  id of the key
 *  12 bytes  nonce, random
 *   n bytes  ciphertext of AES-256-GCM: of each part its length (4 bytes, big-endian) and its UTF-8
 *  16 bytes  tag
 *
 * Associated data: the first 9 bytes, then the JSON array of the identity, in UTF-8.
 */
const VERSION = 1
const KEY_ID_BYTES = 8
export const CONTENT_HEAD_BYTES = 1 + KEY_ID_BYTES
const NONCE_BYTES = 12
const TAG_BYTES = 16
const LENGTH_BYTES = 4

/** A key for AES-256-GCM. `id` is 16 hex digits. Stored content contains the id of its key. */
export type ContentKey = { readonly id: string; readonly key: Uint8Array }

/** The row that content belongs to. Content that was moved to another row cannot be decrypted. */
export type ContentIdentity = readonly [table: string, ...names: string[]]

/**
 * Encrypts callers' requests and answers for the database. Nonces are random, so a key must be used
 * at most 2^32 times (NIST SP 800-38D, 8.3). Does NOT hide lengths and times. Does NOT show that a
 * row was replaced by an older content of the same row.
 */
export type ContentCipher = {
  /** 16 hex digits each, the newest last. */
  readonly keyIds: readonly string[]
  /** The first bytes of every result of `seal`. */
  readonly head: Uint8Array
  /** Encrypts with the newest key. */
  seal(parts: readonly string[], identity: ContentIdentity): Uint8Array
  /**
   * Throws ContentUnavailable: `content_key_missing` when the key is not known,
   * `content_unreadable` when the bytes were not encrypted for this identity.
   */
  open(sealed: Uint8Array, identity: ContentIdentity): readonly string[]
}

/** The last key encrypts. */
export function createContentCipher(keys: readonly [ContentKey, ...ContentKey[]]): ContentCipher {
  const byId = new Map(keys.map(({ id, key }) => [id, key]))
  const newest = keys.at(-1) ?? keys[0]
  const head = Buffer.concat([Buffer.from([VERSION]), Buffer.from(newest.id, 'hex')])
  return {
    keyIds: keys.map(({ id }) => id),
    head,
    seal(parts, identity) {
      const nonce = randomBytes(NONCE_BYTES)
      const cipher = createCipheriv('aes-256-gcm', newest.key, nonce)
      cipher.setAAD(associatedData(head, identity))
      const sealed = parts.flatMap((part) => {
        const length = Buffer.alloc(LENGTH_BYTES)
        length.writeUInt32BE(Buffer.byteLength(part))
        return [cipher.update(length), cipher.update(part, 'utf8')]
      })
      return Buffer.concat([head, nonce, ...sealed, cipher.final(), cipher.getAuthTag()])
    },
    open(sealed, identity) {
      const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength)
      const id = contentKeyId(bytes)
      const key = id === null ? undefined : byId.get(id)
      if (id === null) throw new ContentUnavailable('content_unreadable')
      if (key === undefined) throw new ContentUnavailable('content_key_missing')
      return splitParts(decrypt(bytes, key, identity))
    },
  }
}

/** Throws ContentUnavailable `content_key_missing` when there is no cipher. */
export function openContent(
  cipher: ContentCipher | null,
  sealed: Uint8Array,
  identity: ContentIdentity,
): readonly string[] {
  if (cipher === null) throw new ContentUnavailable('content_key_missing')
  return cipher.open(sealed, identity)
}

/**
 * Returns the id of the key that encrypted this content. Null when the content is too short or has
 * another version.
 */
export function contentKeyId(sealed: Uint8Array): string | null {
  const isWhole = sealed.length >= CONTENT_HEAD_BYTES + NONCE_BYTES + TAG_BYTES
  if (!isWhole || sealed[0] !== VERSION) return null
  return Buffer.from(sealed.subarray(1, CONTENT_HEAD_BYTES)).toString('hex')
}

function decrypt(sealed: Buffer, key: Uint8Array, identity: ContentIdentity): Buffer {
  const head = sealed.subarray(0, CONTENT_HEAD_BYTES)
  const nonce = sealed.subarray(CONTENT_HEAD_BYTES, CONTENT_HEAD_BYTES + NONCE_BYTES)
  const text = sealed.subarray(CONTENT_HEAD_BYTES + NONCE_BYTES, -TAG_BYTES)
  const options = { authTagLength: TAG_BYTES }
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, options)
  decipher.setAAD(associatedData(head, identity))
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES))
  try {
    return Buffer.concat([decipher.update(text), decipher.final()])
  } catch (cause) {
    throw new ContentUnavailable('content_unreadable', { cause })
  }
}

/** Checks nothing: the bytes were authenticated, so `seal` wrote them. */
function splitParts(bytes: Buffer): readonly string[] {
  const parts: string[] = []
  for (let at = 0; at < bytes.length; ) {
    const end = at + LENGTH_BYTES + bytes.readUInt32BE(at)
    parts.push(bytes.toString('utf8', at + LENGTH_BYTES, end))
    at = end
  }
  return parts
}

function associatedData(head: Uint8Array, identity: ContentIdentity): Buffer {
  return Buffer.concat([head, Buffer.from(JSON.stringify(identity))])
}
