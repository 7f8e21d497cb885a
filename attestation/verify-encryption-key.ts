import { addressOf, type PointRecovery, recoverPublicKey } from './account.ts'
import { decodeHex } from './bytes.ts'
import {
  ENCRYPTION_KEY_SECONDS_MAX,
  type EncryptionKey,
  encryptionKeyDigest,
} from './encryption-key.ts'
import { ProofError } from './errors.ts'
import { formOf, formsOf } from './json/forms.ts'
import type { Json } from './json/value.ts'
import type { LogDomain } from './tree-head.ts'

const { countOf, membersOf, textOf } = formsOf('invalid_encryption_key')

/**
 * Reads the key in attacker-controlled `json`. It must have exactly these members, each in its
 * form. Throws FormatError `invalid_encryption_key` naming the member.
 *
 * Does NOT prove who owns the key: verifyEncryptionKey does.
 */
export function parseEncryptionKey(json: Json): EncryptionKey {
  const key = membersOf(json, 'the key', ['public_key', 'not_before', 'not_after', 'signature'])
  return {
    public_key: textOf(key.public_key, 'public_key', PUBLIC_KEY_FORM),
    not_before: countOf(key.not_before, 'not_before'),
    not_after: countOf(key.not_after, 'not_after'),
    signature: textOf(key.signature, 'signature', SIGNATURE_FORM),
  }
}

const PUBLIC_KEY_FORM = formOf(/^[0-9a-f]{64}$/)
const SIGNATURE_FORM = formOf(/^0x[0-9a-f]{130}$/)

/**
 * Verifies that `notary` (an address: 0x, lower case) signed the key for this chain and contract,
 * and that the key is usable at `atMs` (Unix milliseconds). Returns the key, 32 bytes. Throws
 * FormatError as encryptionKeyDigest and recoverPublicKey do, ProofError `wrong_signer`,
 * `key_lifetime` for a key whose lifetime is too long, `key_not_yet`, `key_ended`. Does NOT prove
 * that the notary's key belongs to an enclave (the attestation document does), or that the enclave
 * still has the key.
 */
export function verifyEncryptionKey(
  signed: {
    readonly key: EncryptionKey
    readonly domain: LogDomain
    readonly notary: string
    readonly atMs: number
  },
  recover?: PointRecovery,
): Uint8Array {
  const { key, domain, notary, atMs } = signed
  const digest = encryptionKeyDigest(domain, key)
  const signature = decodeHex(key.signature)
  if (addressOf(recoverPublicKey({ digest, signature }, recover)) !== notary)
    throw new ProofError('wrong_signer', "expected the notary's own signature")
  if (
    !(key.not_after > key.not_before) ||
    key.not_after - key.not_before > ENCRYPTION_KEY_SECONDS_MAX
  )
    throw new ProofError(
      'key_lifetime',
      `expected a key that is usable for at most ${ENCRYPTION_KEY_SECONDS_MAX} seconds`,
    )
  if (!(atMs >= key.not_before * 1000))
    throw new ProofError(
      'key_not_yet',
      `expected a key that is usable now, not from ${key.not_before} on`,
    )
  if (!(atMs < key.not_after * 1000))
    throw new ProofError(
      'key_ended',
      `expected a key that is usable now, not until ${key.not_after}`,
    )
  return decodeHex(key.public_key)
}
