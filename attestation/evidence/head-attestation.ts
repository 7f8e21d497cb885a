import { encodeHex, encodeUtf8, HASH_BYTES, sha256 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'

/** The `format` of a head attestation's statement. `user_data` is the digest of the statement. */
export const HEAD_ATTESTATION_FORMAT = 'affidavit-head-attestation'

/** What an enclave states about its log in a head attestation, without the block's hash. */
export type HeadStatement = {
  /** Digest of the enclave's boot configuration, 32 bytes (digestBootConfiguration). */
  readonly configuration: Uint8Array
  /** The log: its notary's address, 0x and lower case. */
  readonly notary: string
  /** Number of leaves in the enclave's log. The gateway does not always have all these leaves. */
  readonly size: number
  /** Merkle root of these leaves, 32 bytes. */
  readonly root: Uint8Array
}

/**
 * The `user_data` of a head attestation's document, 32 bytes: SHA-256 of the statement's canonical
 * JSON. A head statement has a member `format` and a boot configuration does not, so their digests
 * differ. Throws FormatError `invalid_head_statement`.
 */
export function headAttestationUserData({
  configuration,
  notary,
  size,
  root,
}: HeadStatement): Uint8Array {
  if (configuration.length !== HASH_BYTES || root.length !== HASH_BYTES)
    throw invalidStatement(`a configuration and a root of ${HASH_BYTES} bytes`)
  if (!/^0x[0-9a-f]{40}$/.test(notary)) throw invalidStatement('an address in lower case')
  if (!Number.isSafeInteger(size) || size < 0) throw invalidStatement('a size from 0 to 2^53-1')
  const statement = {
    format: HEAD_ATTESTATION_FORMAT,
    version: 1,
    boot_configuration: encodeHex(configuration),
    notary,
    size,
    root: encodeHex(root),
  }
  return sha256(encodeUtf8(canonicalizeJson(statement)))
}

function invalidStatement(expectation: string): FormatError {
  return new FormatError('invalid_head_statement', `head statement: expected ${expectation}`)
}
