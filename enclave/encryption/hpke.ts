import {
  createDecipheriv,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  hash,
  type KeyObject,
} from 'node:crypto'
import { GCM_NONCE_BYTES, GCM_TAG_BYTES, nonceAt } from '#attestation/ehbp.ts'
import { CallFault } from '../call-fault.ts'

/*
 * HPKE (RFC 9180), the recipient's side of base mode, for one suite: DHKEM(X25519, HKDF-SHA256),
 * HKDF-SHA256, AES-256-GCM. node:crypto takes an eighth of the time of WebCrypto, and adds no code
 * to the measured image.
 */

/** Length of secrets, of public keys, of AES keys, and of SHA-256, bytes. */
export const KEY_BYTES = 32
/** Block size of SHA-256, bytes. */
const BLOCK_BYTES = 64
const FIRST_BLOCK = Buffer.from([1])
const NOTHING = Buffer.alloc(0)

/** DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM (RFC 9180 section 7). */
const kem = labelledBy('KEM\x00\x20')
const suite = labelledBy('HPKE\x00\x20\x00\x01\x00\x02')
/** Start of the key schedule's context, before the hash of `info`: base mode, no shared key id. */
const CONTEXT = Buffer.concat([Buffer.from([0]), suite.extract(NOTHING, 'psk_id_hash', NOTHING)])

/** An X25519 key pair in raw bytes. */
export type KeyPair = { readonly secretKey: Uint8Array; readonly publicKey: Uint8Array }

export type RecipientContext = {
  /**
   * Decrypts the ciphertexts in the order of encryption. Throws CallFault `bad_ciphertext` for any
   * other ciphertext. After this error, the context cannot be used again.
   */
  open(ciphertext: Uint8Array, aad?: Uint8Array): Buffer
  /** RFC 9180 section 5.3. `length` in bytes. */
  export(exporterContext: string, length: number): Buffer
}

/** Returns the public key for 32 random bytes (RFC 7748). The multiplication clamps them. */
export function publicKeyOf(secretKey: Uint8Array): Buffer {
  const spki = createPublicKey(privateKeyOf(secretKey)).export({ type: 'spki', format: 'der' })
  return spki.subarray(-KEY_BYTES)
}

/**
 * SetupBaseR of RFC 9180 for the encapsulated key `enc` (32 bytes). Throws CallFault
 * `bad_ciphertext` for a key of small order. Does NOT show that `enc` was made for this key: only
 * decrypting a ciphertext shows that.
 */
export function setUpRecipient(
  { secretKey, publicKey }: KeyPair,
  { enc, info }: { readonly enc: Uint8Array; readonly info: string },
): RecipientContext {
  const shared = decapsulate(secretKey, { enc, publicKey })
  const infoHash = suite.extract(NOTHING, 'info_hash', Buffer.from(info))
  const secret = suite.extract(shared, 'secret', NOTHING)
  const derive = (label: string, length: number) =>
    suite.expand(secret, label, { context: Buffer.concat([CONTEXT, infoHash]), length })
  const key = derive('key', KEY_BYTES)
  const baseNonce = derive('base_nonce', GCM_NONCE_BYTES)
  const exporter = derive('exp', KEY_BYTES)
  let sequence = 0
  return {
    open: (ciphertext, aad = NOTHING) => {
      const opened = openGcm(ciphertext, { key, nonce: nonceAt(baseNonce, sequence), aad })
      sequence += 1
      return opened
    },
    export: (exporterContext, length) =>
      suite.expand(exporter, 'sec', { context: Buffer.from(exporterContext), length }),
  }
}

function decapsulate(
  secretKey: Uint8Array,
  { enc, publicKey }: { readonly enc: Uint8Array; readonly publicKey: Uint8Array },
): Buffer {
  const prk = kem.extract(NOTHING, 'eae_prk', multiply(secretKey, enc))
  const context = Buffer.concat([enc, publicKey])
  return kem.expand(prk, 'shared_secret', { context, length: KEY_BYTES })
}

/** X25519. Keys of small order produce an all-zero result (RFC 7748), which OpenSSL refuses. */
function multiply(secretKey: Uint8Array, publicKey: Uint8Array): Buffer {
  try {
    return diffieHellman({
      privateKey: privateKeyOf(secretKey),
      publicKey: createPublicKey({
        key: { kty: 'OKP', crv: 'X25519', x: Buffer.from(publicKey).toString('base64url') },
        format: 'jwk',
      }),
    })
  } catch {
    throw badCiphertext()
  }
}

/** The DER prefix of the 32 key bytes (RFC 8410). */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b656e04220420', 'hex')

/** Key objects are not kept: they cannot be overwritten when the key expires. */
function privateKeyOf(secretKey: Uint8Array): KeyObject {
  const der = Buffer.concat([PKCS8_PREFIX, secretKey])
  try {
    return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
  } finally {
    der.fill(0)
  }
}

function openGcm(
  ciphertext: Uint8Array,
  options: { readonly key: Uint8Array; readonly nonce: Uint8Array; readonly aad: Uint8Array },
): Buffer {
  const length = ciphertext.length - GCM_TAG_BYTES
  if (length < 0) throw badCiphertext()
  const decipher = createDecipheriv('aes-256-gcm', options.key, options.nonce, {
    authTagLength: GCM_TAG_BYTES,
  })
  decipher.setAAD(options.aad)
  decipher.setAuthTag(ciphertext.subarray(length))
  const opened = decipher.update(ciphertext.subarray(0, length))
  try {
    decipher.final()
  } catch {
    throw badCiphertext()
  }
  return opened
}

/** The fault does not reveal which step failed. */
export function badCiphertext(): CallFault {
  return new CallFault('bad_ciphertext', 'The encrypted call cannot be opened.')
}

/** LabeledExtract and LabeledExpand (RFC 9180 section 4) for a suite's id. */
function labelledBy(id: string) {
  const write = (label: string, content: Uint8Array) =>
    Buffer.concat([Buffer.from(`HPKE-v1${id}${label}`, 'latin1'), content])
  return {
    extract: (salt: Uint8Array, label: string, material: Uint8Array) =>
      hkdfExtract(salt, write(label, material)),
    expand: (
      prk: Uint8Array,
      label: string,
      { context, length }: { readonly context: Uint8Array; readonly length: number },
    ) => hkdfExpand(prk, Buffer.concat([Buffer.from([0, length]), write(label, context)]), length),
  }
}

/**
 * Computes HKDF-Extract (RFC 5869) with SHA-256, which is HMAC (RFC 2104), in a fifth of the time
 * of `createHmac`.
 */
export function hkdfExtract(salt: Uint8Array, material: Uint8Array): Buffer {
  const key = salt.length > BLOCK_BYTES ? sha256(salt) : salt
  const [inner, outer] = [Buffer.alloc(BLOCK_BYTES, 0x36), Buffer.alloc(BLOCK_BYTES, 0x5c)]
  for (const [at, byte] of key.entries()) {
    inner[at] = byte ^ 0x36
    outer[at] = byte ^ 0x5c
  }
  return sha256(outer, sha256(inner, material))
}

/** HKDF-Expand (RFC 5869) with SHA-256 for at most 32 bytes, which is a single block. */
export function hkdfExpand(prk: Uint8Array, info: Uint8Array, length: number): Buffer {
  if (length > KEY_BYTES) throw new RangeError(`expected at most ${KEY_BYTES} bytes`)
  return hkdfExtract(prk, Buffer.concat([info, FIRST_BLOCK])).subarray(0, length)
}

function sha256(...parts: readonly Uint8Array[]): Buffer {
  return hash('sha256', Buffer.concat(parts), 'buffer')
}
