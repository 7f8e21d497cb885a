import { addressOf, type PointRecovery, recoverPublicKey } from './account.ts'
import { concatBytes, decodeHex } from './bytes.ts'
import { ProofError } from './errors.ts'
import { formOf, formsOf } from './json/forms.ts'
import { isCount, type Json } from './json/value.ts'
import { encodeUintWord, hashText, type LogDomain, typedDataDigest } from './tree-head.ts'

const { countOf, invalid, membersOf, textOf } = formsOf('invalid_encryption_key')

/** Bytes of an X25519 public key (RFC 7748). */
export const ENCRYPTION_KEY_BYTES = 32

/**
 * Longest time that one key may be usable, seconds: an enclave makes a new one every hour, each
 * usable for two.
 */
export const ENCRYPTION_KEY_SECONDS_MAX = 2 * 3_600

/** A key that calls may be encrypted to, as its notary vouches for it. */
export type EncryptionKey = {
  /** X25519: 64 hex digits. */
  readonly public_key: string
  /** Unix seconds: usable from the first to before the second. */
  readonly not_before: number
  readonly not_after: number
  /** 0x + 65 bytes: the notary's, over encryptionKeyDigest. */
  readonly signature: string
}

/**
 * EIP-712 digest (32 bytes) of the statement that a key is an enclave's: the log's domain, type
 * EncryptionKey(bytes32 publicKey,uint64 notBefore,uint64 notAfter), Unix seconds. Throws
 * FormatError `invalid_encryption_key` and `invalid_log_domain`.
 */
export function encryptionKeyDigest(
  domain: LogDomain,
  key: Pick<EncryptionKey, 'public_key' | 'not_before' | 'not_after'>,
): Uint8Array {
  const publicKey = decodeHex(key.public_key)
  if (publicKey.length !== ENCRYPTION_KEY_BYTES)
    throw invalid('public_key', `${ENCRYPTION_KEY_BYTES} bytes`)
  if (!isCount(key.not_before) || !isCount(key.not_after))
    throw invalid('not_before and not_after', 'whole numbers from 0 to 2^53-1')
  return typedDataDigest(
    domain,
    concatBytes(
      TYPE_HASH,
      publicKey,
      encodeUintWord(key.not_before),
      encodeUintWord(key.not_after),
    ),
  )
}

const TYPE_HASH = hashText('EncryptionKey(bytes32 publicKey,uint64 notBefore,uint64 notAfter)')

/**
 * The key that attacker-controlled `json` is: exactly these members, each in its form. Throws
 * FormatError `invalid_encryption_key` naming the member.
 *
 * Does NOT prove whose it is: verifyEncryptionKey does.
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
 * Verifies that `notary` (an address: 0x, lower case) vouches for the key, for this chain and
 * contract, and that it is usable at `atMs` (Unix milliseconds). Gives the key, 32 bytes. Throws
 * FormatError as encryptionKeyDigest and recoverPublicKey do, ProofError `wrong_signer`,
 * `key_lifetime` for one that is usable for longer than a key may be, `key_not_yet`, `key_ended`.
 *
 * Does NOT prove that the notary's key is an enclave's: its attestation document shows that. Nor
 * that the enclave still has the key: it may have ended since.
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
