import type { Check } from '../finding.ts'

/**
 * Whether the only failure is that the attestation document leads to a root that the reader does
 * not trust. Then it is not determined who signed: a development enclave has its own root, and a
 * forger can make one.
 *
 * Does NOT show that the rest of the document is in order: without its root, no part is proved.
 */
export function isUndetermined(checks: readonly Check<string>[]): boolean {
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  return failed.length > 0 && failed.every(isOfUnknownRoot)
}

/** Whether a check failed because the reader does not trust the document's root. */
export function isOfUnknownRoot({ name, outcome, detail }: Check<string>): boolean {
  const isOfDocument = name === 'attestation document' || name === 'attestation'
  return isOfDocument && outcome === 'failed' && detail.startsWith('root_untrusted: ')
}
