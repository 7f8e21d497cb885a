import type { Check } from '../finding.ts'

/**
 * True if only one check failed, because the attestation document leads to a root that the reader
 * does not trust. It is then unknown who signed. A development enclave has its own root, and a
 * forger can make a root.
 *
 * Does NOT show that the rest of the document is valid: without the root, no part is proved.
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
