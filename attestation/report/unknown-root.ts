import { equalBytes } from '../bytes.ts'
import type { Check } from '../finding.ts'
import { AWS_ROOT_SHA256 } from '../nitro/policy.ts'

/** True if a root is not AWS's: it may be a development root. */
export function isOtherRoot(roots: readonly Uint8Array[] | undefined): boolean {
  return roots?.some((root) => !equalBytes(root, AWS_ROOT_SHA256)) ?? false
}

/** Stands beside each result for a reader whose roots isOtherRoot marks. */
export const OTHER_ROOT =
  "You accept a root that is not AWS's, such as the root of a development enclave: this proves " +
  'nothing to other people.'

/**
 * True if the only failed check is the attestation document, because the reader does not trust its
 * root. The signer is then unknown: a development enclave has its own root, and a forger can make a
 * root. Does NOT show that the rest of the document is valid.
 */
export function isUndetermined(checks: readonly Check<string>[]): boolean {
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  return failed.length > 0 && failed.every(isOfUnknownRoot)
}

/** True if a check failed because the reader does not trust the document's root. */
export function isOfUnknownRoot({ name, outcome, detail }: Check<string>): boolean {
  const isOfDocument = name === 'attestation document' || name === 'attestation'
  return isOfDocument && outcome === 'failed' && detail.startsWith('root_untrusted: ')
}
