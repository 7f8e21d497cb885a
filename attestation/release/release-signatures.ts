import { ed25519 } from '@noble/curves/ed25519.js'
import { concatBytes, decodeHex, encodeHex, encodeUtf8 } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { formsOf } from '../json/forms.ts'
import type { Json, JsonObject } from '../json/value.ts'
import { ownMembers } from '../own-members.ts'

export const releaseForms = formsOf('invalid_release')

const { arrayOf, hexOf, invalid, membersOf, textOf } = releaseForms

/** Maximum for one file. Each signer has one signature. */
export const SIGNATURES_MAX = 16

/**
 * One signature: its key (64 hex digits), and the Ed25519 signature over signedBytes (128 digits).
 */
export type ReleaseSignature = { readonly public_key: string; readonly signature: string }

/** The keys that a reader trusts to sign releases. */
export type ReleaseTrust = {
  /** Keys from parseReleaseKey. An empty list refuses every release. */
  readonly keys: readonly Uint8Array[]
  /** The number of these keys that must have signed. Default 1. */
  readonly signersMin?: number
}

/**
 * Returns the bytes to sign: the format, a zero byte, and the canonical JSON (RFC 8785) of the
 * payload. Because of the format, a signature is valid for only one kind of data.
 */
export function signedBytes(format: string, payload: JsonObject): Uint8Array {
  return concatBytes(encodeUtf8(format), new Uint8Array(1), encodeUtf8(canonicalizeJson(payload)))
}

/** Signs `message` with a secret of 32 bytes. */
export function createSignature(message: Uint8Array, secretKey: Uint8Array): ReleaseSignature {
  return {
    public_key: encodeHex(releaseKeyOf(secretKey)),
    signature: encodeHex(signBytes(message, secretKey)),
  }
}

/**
 * Adds `added`, and removes an older signature by the same key. Throws FormatError for more than
 * SIGNATURES_MAX signatures.
 */
export function addSignature(
  signatures: readonly ReleaseSignature[],
  added: ReleaseSignature,
): readonly ReleaseSignature[] {
  const others = signatures.filter(({ public_key }) => public_key !== added.public_key)
  if (others.length === SIGNATURES_MAX) throw invalid('signatures', `at most ${SIGNATURES_MAX}`)
  return [...others, added]
}

/** Reads the signatures in attacker-controlled `json`, one per key. Throws FormatError. */
export function parseSignatures(json: Json): readonly ReleaseSignature[] {
  const signatures = arrayOf(json, 'signatures', { min: 1, max: SIGNATURES_MAX }).map(
    (entry, at) => {
      const name = `signatures.${at}`
      const given = membersOf(entry, name, ['public_key', 'signature'])
      const publicKey = hexOf(given.public_key, `${name}.public_key`, RELEASE_KEY_BYTES)
      return {
        public_key: publicKey,
        signature: hexOf(given.signature, `${name}.signature`, RELEASE_SIGNATURE_BYTES),
      }
    },
  )
  if (new Set(signatures.map(({ public_key }) => public_key)).size !== signatures.length)
    throw invalid('signatures', 'of a different key each')
  return signatures
}

/**
 * Returns the trusted keys (hex) that signed `message`, in the order of the file. Ignores
 * signatures by other keys, which anyone could add. Throws ProofError `release_signature` if the
 * signature of a trusted key is wrong, `release_not_signed` if fewer than `signersMin` trusted keys
 * signed. Throws FormatError `invalid_release_key` for an invalid `trust`, such as too few keys.
 */
export function verifyReleaseSignatures(
  signatures: readonly ReleaseSignature[],
  message: Uint8Array,
  trust: ReleaseTrust,
): readonly string[] {
  const { keys, signersMin = 1 } = ownMembers(trust)
  const trusted = new Map(keys.map((key) => [encodeHex(key), parseReleaseKey(encodeHex(key))]))
  if (!Number.isSafeInteger(signersMin) || signersMin < 1 || signersMin > trusted.size)
    throw new FormatError(
      'invalid_release_key',
      `expected 1 to ${trusted.size} signers of as many different keys`,
    )
  const signers: string[] = []
  for (const { public_key, signature } of signatures) {
    const publicKey = trusted.get(public_key)
    if (publicKey === undefined) continue
    if (!verifyBytes(decodeHex(signature), { message, publicKey }))
      throw new ProofError(
        'release_signature',
        `expected the signature of ${public_key} to be over this payload`,
      )
    signers.push(public_key)
  }
  if (signers.length < signersMin)
    throw new ProofError(
      'release_not_signed',
      `expected signatures of ${signersMin} of the trusted keys, got ${signers.length}`,
    )
  return signers
}

/**
 * Returns a time of the form `2026-11-21T14:00:00Z` (ISO 8601), in the years 1970 to 9999. Throws
 * FormatError `invalid_release` with `name`.
 */
export function timeOf(json: Json | undefined, name: string): string {
  const time = textOf(json, name, TIME)
  if (!isTime(time)) throw invalid(name, TIME.expectation)
  return time
}

/** Unix milliseconds for a time that `timeOf` accepted. */
export function millisecondsOf(time: string): number {
  return Date.parse(time)
}

/**
 * Formats a time (Unix milliseconds) in the form of `timeOf`, without milliseconds. Throws
 * FormatError `invalid_release` outside 1970 to 9999.
 */
export function formatTime(timeMs: number): string {
  if (!(timeMs >= 0 && timeMs <= TIME_MS_MAX))
    throw invalid('the time', 'of the years 1970 to 9999')
  return `${new Date(timeMs).toISOString().slice(0, 19)}Z`
}

/** Describes a time (Unix milliseconds) for messages, even if it is not a valid date. */
export function describeTime(timeMs: number): string {
  const time = new Date(timeMs)
  return Number.isNaN(time.getTime()) ? `${timeMs} ms` : time.toISOString()
}

const TIME = {
  form: /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$/,
  expectation: 'a time such as 2026-11-21T14:00:00Z',
}

const TIME_MS_MAX = Date.UTC(9999, 11, 31, 23, 59, 59)

/** Refuses 30 February and 24:00:00, because some readers read these as the next day. */
function isTime(text: string): boolean {
  const timeMs = Date.parse(text)
  return (
    timeMs >= 0 &&
    timeMs <= TIME_MS_MAX &&
    new Date(timeMs).toISOString() === `${text.slice(0, 19)}.000Z`
  )
}

/** Bytes of an Ed25519 public key, and of a secret. */
export const RELEASE_KEY_BYTES = 32
const RELEASE_SIGNATURE_BYTES = 64

/**
 * Reads a release key of 32 bytes from 64 lower-case hex digits. Accepts only points of prime order
 * in canonical encoding (RFC 8032 section 5.1.3), which all verifiers read in the same way. With a
 * key of small order, one signature is valid for many messages. Throws FormatError
 * `invalid_release_key`.
 */
export function parseReleaseKey(text: string): Uint8Array {
  if (!/^[0-9a-f]{64}$/.test(text))
    throw new FormatError(
      'invalid_release_key',
      'expected a release key of 64 lower-case hex digits',
    )
  const key = decodeHex(text)
  if (!isPrimeOrder(key))
    throw new FormatError(
      'invalid_release_key',
      `expected a release key that is a point of prime order, got ${encodeHex(key)}`,
    )
  return key
}

/** The public key of a secret of 32 bytes (RFC 8032 section 5.1.5). */
export function releaseKeyOf(secretKey: Uint8Array): Uint8Array {
  return ed25519.getPublicKey(secretKey)
}

/** Ed25519 (RFC 8032 section 5.1.6): 64 bytes, always the same for the same message and key. */
export function signBytes(message: Uint8Array, secretKey: Uint8Array): Uint8Array {
  return ed25519.sign(message, secretKey)
}

/**
 * Verifies strictly (RFC 8032 section 5.1.7), so that all verifiers agree: S must be below the
 * group order, and R a canonical point of prime order. `publicKey` comes from parseReleaseKey.
 * Never throws.
 */
export function verifyBytes(
  signature: Uint8Array,
  { message, publicKey }: { readonly message: Uint8Array; readonly publicKey: Uint8Array },
): boolean {
  if (signature.length !== RELEASE_SIGNATURE_BYTES) return false
  return (
    ed25519.verify(signature, message, publicKey, { zip215: false }) &&
    isPrimeOrder(signature.subarray(0, RELEASE_KEY_BYTES))
  )
}

/** False for the neutral point, and for bytes that encode no point. */
function isPrimeOrder(encoding: Uint8Array): boolean {
  try {
    const point = ed25519.Point.fromBytes(encoding, false)
    return !point.isSmallOrder() && point.isTorsionFree()
  } catch {
    return false
  }
}
