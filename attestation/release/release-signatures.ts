import { ed25519 } from '@noble/curves/ed25519.js'
import { concatBytes, decodeHex, encodeHex, encodeUtf8 } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { formsOf } from '../json/forms.ts'
import type { Json, JsonObject } from '../json/value.ts'
import { ownMembers } from '../own-members.ts'

/** Forms of releases and their lists. */
export const releaseForms = formsOf('invalid_release')

const { arrayOf, hexOf, invalid, membersOf, textOf } = releaseForms

/** Signatures that one file may carry: signers of a release, each once. */
export const SIGNATURES_MAX = 16

/** One signature: the signer's key, 64 hex digits, and 128 of Ed25519 over signedBytes. */
export type ReleaseSignature = { readonly public_key: string; readonly signature: string }

/** Whom a reader trusts to sign releases. */
export type ReleaseTrust = {
  /** Keys as parseReleaseKey gives them. None refuses everything. */
  readonly keys: readonly Uint8Array[]
  /** How many different of these keys must have signed. Default 1. */
  readonly signersMin?: number
}

/**
 * What is signed: the format, a zero byte, and the canonical JSON (RFC 8785) of the payload. The
 * format in front keeps a signature of a release from passing for one of a list, or of anything
 * else that the key signs.
 */
export function signedBytes(format: string, payload: JsonObject): Uint8Array {
  return concatBytes(encodeUtf8(format), new Uint8Array(1), encodeUtf8(canonicalizeJson(payload)))
}

/** The signature over `message` by a secret of 32 bytes. */
export function createSignature(message: Uint8Array, secretKey: Uint8Array): ReleaseSignature {
  return {
    public_key: encodeHex(releaseKeyOf(secretKey)),
    signature: encodeHex(signBytes(message, secretKey)),
  }
}

/**
 * Signatures with `added` among them, in place of an older one by the same key. Throws FormatError
 * over SIGNATURES_MAX.
 */
export function addSignature(
  signatures: readonly ReleaseSignature[],
  added: ReleaseSignature,
): readonly ReleaseSignature[] {
  const others = signatures.filter(({ public_key }) => public_key !== added.public_key)
  if (others.length === SIGNATURES_MAX) throw invalid('signatures', `at most ${SIGNATURES_MAX}`)
  return [...others, added]
}

/** The signatures that attacker-controlled `json` lists, one a key. Throws FormatError. */
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
 * Gives the trusted keys (hex) that signed `message`, in the order of the file. Signatures of other
 * keys are not looked at: anyone could add one. Throws ProofError `release_signature` when one that
 * names a trusted key does not hold, `release_not_signed` when fewer than `signersMin` trusted keys
 * signed; FormatError `invalid_release_key` for a trust that no file can meet.
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
 * A time as ISO 8601 in UTC, to the second, in the one form `2026-11-21T14:00:00Z`, of the years
 * 1970 to 9999. Throws FormatError `invalid_release` naming `name`.
 */
export function timeOf(json: Json | undefined, name: string): string {
  const time = textOf(json, name, TIME)
  if (!isTime(time)) throw invalid(name, TIME.expectation)
  return time
}

/** Unix milliseconds of a time that `timeOf` took. */
export function millisecondsOf(time: string): number {
  return Date.parse(time)
}

/**
 * The one form of a time, Unix milliseconds, cut to the second. Throws FormatError
 * `invalid_release` outside 1970 to 9999.
 */
export function formatTime(timeMs: number): string {
  if (!(timeMs >= 0 && timeMs <= TIME_MS_MAX))
    throw invalid('the time', 'of the years 1970 to 9999')
  return `${new Date(timeMs).toISOString().slice(0, 19)}Z`
}

/**
 * A time in words for messages, Unix milliseconds; also a number that is not a date, as a
 * document's may be.
 */
export function describeTime(timeMs: number): string {
  const time = new Date(timeMs)
  return Number.isNaN(time.getTime()) ? `${timeMs} ms` : time.toISOString()
}

const TIME = {
  form: /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$/,
  expectation: 'a time such as 2026-11-21T14:00:00Z',
}

const TIME_MS_MAX = Date.UTC(9999, 11, 31, 23, 59, 59)

/** Not 30 February, and not 24:00:00, which some readers take for the next day. */
function isTime(text: string): boolean {
  const timeMs = Date.parse(text)
  return (
    timeMs >= 0 &&
    timeMs <= TIME_MS_MAX &&
    new Date(timeMs).toISOString() === `${text.slice(0, 19)}.000Z`
  )
}

/** Bytes of an Ed25519 public key, and of the secret it is made from. */
export const RELEASE_KEY_BYTES = 32
/** Bytes of an Ed25519 signature: R and S. */
const RELEASE_SIGNATURE_BYTES = 64

/**
 * The release key, 32 bytes, that 64 lower-case hex digits are. Only a key that every verifier
 * reads alike: the one encoding of a point (RFC 8032 section 5.1.3: y below p, no sign for x = 0)
 * that is in the group of prime order. A key of small order would make signatures that hold for
 * many messages. Throws FormatError `invalid_release_key`.
 */
export function parseReleaseKey(text: string): Uint8Array {
  if (!/^[0-9a-f]{64}$/.test(text))
    throw new FormatError(
      'invalid_release_key',
      'expected a release key of 64 lower-case hex digits',
    )
  const key = decodeHex(text)
  checkPoint(key)
  return key
}

/** The public key of a secret of 32 bytes (RFC 8032 section 5.1.5). */
export function releaseKeyOf(secretKey: Uint8Array): Uint8Array {
  return ed25519.getPublicKey(secretKey)
}

/**
 * The signature of 64 bytes (Ed25519, RFC 8032 section 5.1.6), deterministic: no randomness is
 * needed.
 */
export function signBytes(message: Uint8Array, secretKey: Uint8Array): Uint8Array {
  return ed25519.sign(message, secretKey)
}

/**
 * Whether the signature over `message` is by `publicKey`, which parseReleaseKey gave. Strict (RFC
 * 8032 section 5.1.7): S below the group's order, R in its one encoding; and R in the group of
 * prime order, so that verifiers with and without the cofactor agree. Never throws.
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

function checkPoint(key: Uint8Array): void {
  if (!isPrimeOrder(key))
    throw new FormatError(
      'invalid_release_key',
      `expected a release key that is a point of prime order, got ${encodeHex(key)}`,
    )
}

/** Of an encoded point. Of the small-order points, only the neutral one is free of torsion. */
function isPrimeOrder(encoding: Uint8Array): boolean {
  try {
    const point = ed25519.Point.fromBytes(encoding, false)
    return !point.isSmallOrder() && point.isTorsionFree()
  } catch {
    return false
  }
}
