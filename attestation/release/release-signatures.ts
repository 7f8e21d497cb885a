import { concatBytes, decodeHex, encodeHex, encodeUtf8 } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import type { Json, JsonObject } from '../json/value.ts'
import { ownMembers } from '../own-members.ts'
import { arrayOf, hexOf, invalidRelease, membersOf } from './release-forms.ts'
import {
  parseReleaseKey,
  RELEASE_KEY_BYTES,
  RELEASE_SIGNATURE_BYTES,
  releaseKeyOf,
  signBytes,
  verifyBytes,
} from './release-key.ts'

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
 * What is signed: the format, a zero byte, and the canonical JSON (RFC 8785) of the payload. The format in front keeps a
 * signature of a release from passing for one of a list, or of anything else that the key signs.
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

/** Signatures with `added` among them, in place of an older one by the same key. Throws FormatError over SIGNATURES_MAX. */
export function addSignature(
  signatures: readonly ReleaseSignature[],
  added: ReleaseSignature,
): readonly ReleaseSignature[] {
  const others = signatures.filter(({ public_key }) => public_key !== added.public_key)
  if (others.length === SIGNATURES_MAX) throw invalidRelease('signatures', `at most ${SIGNATURES_MAX}`)
  return [...others, added]
}

/** The signatures that attacker-controlled `json` lists, one a key. Throws FormatError. */
export function parseSignatures(json: Json): readonly ReleaseSignature[] {
  const signatures = arrayOf(json, 'signatures', { min: 1, max: SIGNATURES_MAX }).map((entry, at) => {
    const name = `signatures.${at}`
    const given = membersOf(entry, name, ['public_key', 'signature'])
    const publicKey = hexOf(given.public_key, `${name}.public_key`, RELEASE_KEY_BYTES)
    return {
      public_key: publicKey,
      signature: hexOf(given.signature, `${name}.signature`, RELEASE_SIGNATURE_BYTES),
    }
  })
  if (new Set(signatures.map(({ public_key }) => public_key)).size !== signatures.length)
    throw invalidRelease('signatures', 'of a different key each')
  return signatures
}

/**
 * Gives the trusted keys (hex) that signed `message`, in the order of the file. Signatures of other keys are not looked at:
 * anyone could add one. Throws ProofError `release_signature` when one that names a trusted key does not hold,
 * `release_not_signed` when fewer than `signersMin` trusted keys signed; FormatError `invalid_release_key` for a trust that
 * no file can meet.
 */
export function verifySignatures(
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
