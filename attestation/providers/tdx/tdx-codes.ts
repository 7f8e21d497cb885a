import { ProviderEvidenceError } from '../provider-error.ts'

/** In the order of the report. Each text is true if the check passed. */
export const TDX_CHECKS = {
  format: 'a quote of version 4 or 5 with its signature data',
  'PCK chain': "the chain of the platform's key leads to Intel's root",
  'QE report': "the platform's key signed the report of the quoting enclave",
  'attestation key': 'the quoting enclave states the attestation key',
  'quote signature': 'the attestation key signed the quote',
  'TCB info': 'Intel signed the TCB levels of this kind of platform',
  'QE identity': 'Intel signed the identity of its quoting enclave',
  revocation: 'no certificate of the chains was revoked',
  'quoting enclave': "the quoting enclave is Intel's",
  'platform TCB': "the platform's parts match a TCB level",
  'TDX module': 'the TDX module matches an identity and a level',
  'TCB status': 'the status of all parts is accepted',
  FMSPC: 'the kind of platform is accepted',
  'TD attributes': 'no debugging, and only expected attributes',
  XFAM: 'only expected extended features',
  'service TD': 'no service TD can migrate this TD',
  measurements: 'the measurements are accepted',
  'report data': 'the report data is the expected one',
} as const satisfies Readonly<Record<string, string>>

export type TdxCheckName = keyof typeof TDX_CHECKS

/**
 * Each code belongs to one check. Codes are stable. Faults of certificate chains also have the
 * codes of rules 13 to 19 of nitro/rules.md.
 */
export const TDX_CODES = {
  quote_size: 'format',
  quote_version: 'format',
  quote_key_type: 'format',
  quote_tee_type: 'format',
  quote_qe_vendor: 'format',
  quote_body_type: 'format',
  quote_body_size: 'format',
  quote_truncated: 'format',
  quote_certification_type: 'format',
  quote_certification_size: 'format',
  quote_chain_type: 'format',
  quote_chain_size: 'format',
  pem_malformed: 'format',
  quote_chain_length: 'format',
  pck_names: 'PCK chain',
  pck_extension: 'PCK chain',
  qe_signature: 'QE report',
  attestation_key_mismatch: 'attestation key',
  qe_report_data_not_zero: 'attestation key',
  attestation_key_point: 'quote signature',
  quote_signature: 'quote signature',
  crl_malformed: 'revocation',
  crl_algorithm: 'revocation',
  crl_unsupported: 'revocation',
  crl_foreign: 'revocation',
  crl_signature: 'revocation',
  crl_key_usage: 'revocation',
  crl_scope: 'revocation',
  tcb_info_malformed: 'TCB info',
  tcb_info_id: 'TCB info',
  tcb_info_signature: 'TCB info',
  tcb_info_not_yet_valid: 'TCB info',
  tcb_info_expired: 'TCB info',
  tcb_info_fmspc: 'TCB info',
  tcb_info_pce_id: 'TCB info',
  tcb_info_too_old: 'TCB info',
  tcb_signing_names: 'TCB info',
  qe_identity_malformed: 'QE identity',
  qe_identity_id: 'QE identity',
  qe_identity_signature: 'QE identity',
  qe_identity_not_yet_valid: 'QE identity',
  qe_identity_expired: 'QE identity',
  qe_identity_too_old: 'QE identity',
  qe_mr_signer: 'quoting enclave',
  qe_prod_id: 'quoting enclave',
  qe_misc_select: 'quoting enclave',
  qe_attributes: 'quoting enclave',
  qe_level_missing: 'quoting enclave',
  tcb_level_missing: 'platform TCB',
  module_identity_missing: 'TDX module',
  module_mr_signer: 'TDX module',
  module_attributes: 'TDX module',
  module_level_missing: 'TDX module',
  tcb_revoked: 'TCB status',
  tcb_status_not_accepted: 'TCB status',
  tcb_advisory_not_accepted: 'TCB status',
  fmspc_not_accepted: 'FMSPC',
  td_debug: 'TD attributes',
  td_attributes_forbidden: 'TD attributes',
  td_attributes_missing: 'TD attributes',
  xfam_forbidden: 'XFAM',
  xfam_missing: 'XFAM',
  service_td: 'service TD',
  measurement_mismatch: 'measurements',
  report_data_mismatch: 'report data',
} as const satisfies Readonly<Record<string, TdxCheckName>>

export type TdxCode = keyof typeof TDX_CODES

export function tdxFault(code: TdxCode, message: string): ProviderEvidenceError<TdxCode> {
  return new ProviderEvidenceError(code, message)
}
