import { concatBytes, decodeHex } from './bytes.ts'
import { formsOf } from './json/forms.ts'
import { isCount } from './json/value.ts'
import { encodeUintWord, hashText, type LogDomain, typedDataDigest } from './tree-head.ts'

const { invalid } = formsOf('invalid_encryption_key')

/** Bytes of an X25519 public key (RFC 7748). */
const ENCRYPTION_KEY_BYTES = 32

/** Longest lifetime of one key, seconds. An enclave makes a new key every hour. */
export const ENCRYPTION_KEY_SECONDS_MAX = 2 * 3_600

/** A key for encrypting calls, with the notary's signature over it. */
export type EncryptionKey = {
  /** X25519: 64 hex digits. */
  readonly public_key: string
  /** Unix seconds. The key is usable from `not_before` until just before `not_after`. */
  readonly not_before: number
  readonly not_after: number
  /** 0x + 65 bytes: the notary's signature over encryptionKeyDigest. */
  readonly signature: string
}

/**
 * EIP-712 digest (32 bytes) that a notary signs for its enclave's key. Domain: as for the log.
 * Type: EncryptionKey(bytes32 publicKey,uint64 notBefore,uint64 notAfter), Unix seconds. Throws
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
