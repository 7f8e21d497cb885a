import {
  createDecipheriv,
  createHmac,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  type KeyObject,
} from 'node:crypto'
import { GCM_NONCE_BYTES, GCM_TAG_BYTES, nonceAt } from '../../attestation/ehbp.ts'
import { CallFault } from '../call-fault.ts'

/*
 * HPKE (RFC 9180), the recipient of base mode, for one suite: DHKEM(X25519, HKDF-SHA256),
 * HKDF-SHA256, AES-256-GCM. On node:crypto: a recipient costs an eighth of what the same costs in
 * WebCrypto, and there is nothing more to measure.
 */

/** DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM (RFC 9180 section 7). */
const KEM_SUITE = Buffer.from('KEM\x00\x20', 'latin1')
const SUITE = Buffer.from('HPKE\x00\x20\x00\x01\x00\x02', 'latin1')
const VERSION = Buffer.from('HPKE-v1')
const MODE_BASE = Buffer.from([0])
const NOTHING = Buffer.alloc(0)

/** Bytes of secrets, of public keys, and of AES keys. */
export const KEY_BYTES = 32

/** An X25519 key pair, both in raw bytes. */
export type KeyPair = { readonly secretKey: Uint8Array; readonly publicKey: Uint8Array }

/** One call's context, as its recipient has it. */
export type RecipientContext = {
  /**
   * Opens the next ciphertext, in the order in which they were sealed. Throws CallFault
   * `bad_ciphertext` for anything else; the context is of no use after that.
   */
  open(ciphertext: Uint8Array, aad?: Uint8Array): Buffer
  /** Exports a secret of so many bytes (RFC 9180 section 5.3). */
  export(exporterContext: string, length: number): Buffer
}

/** The public key of 32 random bytes (RFC 7748; clamping is part of the multiplication). */
export function publicKeyOf(secretKey: Uint8Array): Buffer {
  const spki = createPublicKey(privateKeyOf(secretKey)).export({ type: 'spki', format: 'der' })
  return spki.subarray(-KEY_BYTES)
}

/**
 * SetupBaseR of RFC 9180 for the encapsulated key `enc` (32 bytes). Throws CallFault
 * `bad_ciphertext` for a key of small order.
 *
 * Does NOT show that `enc` was made for this key: only opening a ciphertext does.
 */
export function setUpRecipient(
  { secretKey, publicKey }: KeyPair,
  { enc, info }: { readonly enc: Uint8Array; readonly info: string },
): RecipientContext {
  const shared = decapsulate(secretKey, { enc, publicKey })
  const scheduled = Buffer.concat([
    MODE_BASE,
    extract(NOTHING, 'psk_id_hash', NOTHING),
    extract(NOTHING, 'info_hash', Buffer.from(info)),
  ])
  const secret = extract(shared, 'secret', NOTHING)
  const key = expand(secret, { label: 'key', context: scheduled, length: KEY_BYTES })
  const baseNonce = expand(secret, {
    label: 'base_nonce',
    context: scheduled,
    length: GCM_NONCE_BYTES,
  })
  const exporter = expand(secret, { label: 'exp', context: scheduled, length: KEY_BYTES })
  let sequence = 0
  return {
    open: (ciphertext, aad = NOTHING) => {
      const opened = openGcm(ciphertext, { key, nonce: nonceAt(baseNonce, sequence), aad })
      sequence += 1
      return opened
    },
    export: (exporterContext, length) =>
      expand(exporter, { label: 'sec', context: Buffer.from(exporterContext), length }),
  }
}

function decapsulate(
  secretKey: Uint8Array,
  { enc, publicKey }: { readonly enc: Uint8Array; readonly publicKey: Uint8Array },
): Buffer {
  const shared = multiply(secretKey, enc)
  const prk = extractWith(KEM_SUITE, { salt: NOTHING, label: 'eae_prk', material: shared })
  return expandWith(KEM_SUITE, {
    prk,
    label: 'shared_secret',
    context: Buffer.concat([enc, publicKey]),
    length: KEY_BYTES,
  })
}

/** X25519. OpenSSL refuses a result of zeros, which keys of small order give (RFC 7748). */
function multiply(secretKey: Uint8Array, publicKey: Uint8Array): Buffer {
  try {
    return diffieHellman({
      privateKey: privateKeyOf(secretKey),
      publicKey: createPublicKey({
        key: Buffer.concat([SPKI_PREFIX, publicKey]),
        format: 'der',
        type: 'spki',
      }),
    })
  } catch {
    throw badCiphertext()
  }
}

/** DER of what stands before the 32 bytes (RFC 8410). */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b656e04220420', 'hex')
const SPKI_PREFIX = Buffer.from('302a300506032b656e032100', 'hex')

/** Not kept: a key object cannot be overwritten when its key ends. */
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
  so: { readonly key: Uint8Array; readonly nonce: Uint8Array; readonly aad: Uint8Array },
): Buffer {
  const length = ciphertext.length - GCM_TAG_BYTES
  if (length < 0) throw badCiphertext()
  const decipher = createDecipheriv('aes-256-gcm', so.key, so.nonce, {
    authTagLength: GCM_TAG_BYTES,
  })
  decipher.setAAD(so.aad)
  decipher.setAuthTag(ciphertext.subarray(length))
  const opened = decipher.update(ciphertext.subarray(0, length))
  try {
    decipher.final()
  } catch {
    throw badCiphertext()
  }
  return opened
}

/** Which step failed is not told. */
export function badCiphertext(): CallFault {
  return new CallFault('bad_ciphertext', 'The encrypted call cannot be opened.')
}

function extract(salt: Uint8Array, label: string, material: Uint8Array): Buffer {
  return extractWith(SUITE, { salt, label, material })
}

function expand(
  prk: Uint8Array,
  so: { readonly label: string; readonly context: Uint8Array; readonly length: number },
): Buffer {
  return expandWith(SUITE, { prk, ...so })
}

/** LabeledExtract (RFC 9180 section 4). */
function extractWith(
  suite: Uint8Array,
  so: { readonly salt: Uint8Array; readonly label: string; readonly material: Uint8Array },
): Buffer {
  return hkdfExtract(so.salt, Buffer.concat([VERSION, suite, Buffer.from(so.label), so.material]))
}

/** LabeledExpand (RFC 9180 section 4). */
function expandWith(
  suite: Uint8Array,
  so: {
    readonly prk: Uint8Array
    readonly label: string
    readonly context: Uint8Array
    readonly length: number
  },
): Buffer {
  const length = Buffer.alloc(2)
  length.writeUInt16BE(so.length)
  const info = Buffer.concat([length, VERSION, suite, Buffer.from(so.label), so.context])
  return hkdfExpand(so.prk, info, so.length)
}

/** HKDF-Extract (RFC 5869) with SHA-256. */
export function hkdfExtract(salt: Uint8Array, material: Uint8Array): Buffer {
  return createHmac('sha256', salt).update(material).digest()
}

/** HKDF-Expand (RFC 5869) with SHA-256, of at most 32 bytes: one block is enough here. */
export function hkdfExpand(prk: Uint8Array, info: Uint8Array, length: number): Buffer {
  if (length > KEY_BYTES) throw new RangeError(`expected at most ${KEY_BYTES} bytes`)
  return createHmac('sha256', prk)
    .update(info)
    .update(Buffer.from([1]))
    .digest()
    .subarray(0, length)
}
