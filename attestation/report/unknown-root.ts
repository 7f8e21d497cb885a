import type { Check } from '../finding.ts'

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
