import { ProviderEvidenceError } from '../provider-error.ts'

/** The checks in the order of the report. Each text is true if its check passed. */
export const SIGSTORE_CHECKS = {
  bundle: 'a bundle of a certificate, a log entry and a signed statement',
  'log entry': 'a trusted log promised the entry, which is of this bundle',
  'log inclusion': 'the entry is in the tree whose head the log signed',
  certificate: 'a trusted authority issued the certificate, which was valid at the entry',
  signature: "the certificate's key signed the statement",
  identity: 'the accepted repository built at an accepted ref',
  statement: 'a statement of in-toto about one artifact',
  'certificate log': 'a trusted log of certificates promised to include the certificate',
} as const satisfies Readonly<Record<string, string>>

export type SigstoreCheckName = keyof typeof SIGSTORE_CHECKS

/** Each code has one check. Codes are stable. */
export const SIGSTORE_CODES = {
  bundle_malformed: 'bundle',
  bundle_entries: 'bundle',
  log_unknown: 'log entry',
  entry_promise: 'log entry',
  entry_kind: 'log entry',
  entry_mismatch: 'log entry',
  checkpoint_malformed: 'log inclusion',
  checkpoint_signature: 'log inclusion',
  checkpoint_mismatch: 'log inclusion',
  not_included: 'log inclusion',
  authority_unknown: 'certificate',
  signing_certificate: 'certificate',
  signing_usage: 'certificate',
  envelope_signature: 'signature',
  identity_malformed: 'identity',
  identity_issuer: 'identity',
  identity_repository: 'identity',
  identity_ref: 'identity',
  identity_workflow: 'identity',
  statement_malformed: 'statement',
  artifact_not_accepted: 'statement',
  timestamp_missing: 'certificate log',
  timestamp_malformed: 'certificate log',
  timestamp_log_unknown: 'certificate log',
  timestamp_signature: 'certificate log',
} as const satisfies Readonly<Record<string, SigstoreCheckName>>

export type SigstoreCode = keyof typeof SIGSTORE_CODES

export function refuseBundle(
  code: SigstoreCode,
  message: string,
): ProviderEvidenceError<SigstoreCode> {
  return new ProviderEvidenceError(code, message)
}
