import { completionDigest } from './account.ts'
import { concatBytes, encodeUtf8, sha256 } from './bytes.ts'
import { canonicalizeJson } from './json/canonical.ts'

/** What an enclave states about a request that it refused: it made nothing, and will not. */
export type RefusalStatement = {
  /** 64 hex digits. */
  readonly request_hash: string
  /** 0x, lower case. */
  readonly notary: string
  /** How often the enclave was asked for this request, this time included. */
  readonly attempt: number
  /** The code of the fault. */
  readonly code: string
  /** Unix milliseconds, the enclave's clock. */
  readonly at: number
}

export type SignedRefusal = RefusalStatement & {
  /** 0x and 65 bytes of hex, by the notary. */
  readonly signature: string
}

/**
 * The digest (32 bytes) that a notary signs for a refusal: EIP-191 over SHA-256 of `affidavit
 * refusal`, a zero byte, and the canonical JSON of the statement.
 */
export function refusalDigest(statement: RefusalStatement): Uint8Array {
  const { request_hash, notary, attempt, code, at } = statement
  const text = canonicalizeJson({ request_hash, notary, attempt, code, at })
  return completionDigest(sha256(concatBytes(LABEL, encodeUtf8(text))))
}

const LABEL = encodeUtf8('affidavit refusal\0')
