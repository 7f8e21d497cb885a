import { ProviderEvidenceError } from '../provider-error.ts'

/** The checks in the order of the report. Each text is true if its check passed. */
export const SNP_CHECKS = {
  'report layout': 'a report of version 2 to 5 with reserved bytes zero',
  'certificate chain': "the chain of the report's key leads to AMD's root of a product",
  revocation: "AMD's list does not revoke the intermediate authority",
  'report signature': "the certificate's key signed the report",
  product: 'processor, certificate and root are of one product',
  'TCB of the certificate': 'the certificate is for exactly the reported TCB',
  chip: "the certificate is for the report's chip",
  'debug and migration off': "the host cannot read the guest's memory, or move the guest",
  VMPL: 'the expected privilege level asked for the report',
  'TCB floor': 'reported, committed and launch TCB are not below the floor',
  measurement: 'the launch measurement is accepted',
  'host data': 'the host data is accepted',
  'report data': 'the report data is the expected one',
} as const satisfies Readonly<Record<string, string>>

export type SnpCheckName = keyof typeof SNP_CHECKS

/** The check that each rule of rules.md belongs to. */
export const SNP_RULES = {
  1: 'report layout',
  2: 'report layout',
  3: 'report layout',
  4: 'report layout',
  5: 'certificate chain',
  6: 'certificate chain',
  7: 'certificate chain',
  8: 'certificate chain',
  9: 'certificate chain',
  10: 'certificate chain',
  11: 'revocation',
  12: 'report signature',
  13: 'product',
  14: 'TCB of the certificate',
  15: 'chip',
  16: 'debug and migration off',
  17: 'VMPL',
  18: 'TCB floor',
  19: 'measurement',
  20: 'host data',
  21: 'report data',
} as const satisfies Readonly<Record<number, SnpCheckName>>

export type SnpRule = keyof typeof SNP_RULES

/** The rule that each code belongs to. Codes are stable. */
export const SNP_CODES = {
  report_size: 1,
  report_version: 2,
  report_reserved: 3,
  guest_policy_reserved: 3,
  platform_info_reserved: 3,
  signature_algorithm: 4,
  signing_key: 4,
  signature_padding: 4,
  signature_out_of_range: 4,
  certificate_size: 5,
  root_untrusted: 5,
  certificate_der: 6,
  certificate_version: 6,
  certificate_algorithm_mismatch: 6,
  certificate_algorithm: 6,
  certificate_key_type: 6,
  certificate_curve: 6,
  certificate_point: 6,
  certificate_rsa_key: 6,
  certificate_duplicate_extension: 6,
  certificate_critical_extension: 6,
  issuer_mismatch: 7,
  chain_order: 7,
  certificate_name: 7,
  ca_basic_constraints: 8,
  ca_key_usage: 8,
  path_length_exceeded: 8,
  leaf_is_ca: 8,
  leaf_key_usage: 8,
  certificate_not_yet_valid: 9,
  certificate_expired: 9,
  certificate_signature_invalid: 10,
  revocation_list_malformed: 11,
  revocation_list_algorithm: 11,
  revocation_list_unsupported: 11,
  revocation_list_foreign: 11,
  revocation_list_signature: 11,
  revocation_list_not_yet_valid: 11,
  revocation_list_expired: 11,
  certificate_revoked: 11,
  signature_invalid: 12,
  product_unknown: 13,
  product_malformed: 13,
  product_mismatch: 13,
  provider_extension: 13,
  tcb_reserved: 14,
  tcb_extension: 14,
  tcb_mismatch: 14,
  chip_extension: 15,
  chip_mismatch: 15,
  debug_allowed: 16,
  migration_allowed: 16,
  migration_agent: 16,
  vmpl_unexpected: 17,
  tcb_floor_missing: 18,
  tcb_below_floor: 18,
  measurement_mismatch: 19,
  host_data_mismatch: 20,
  report_data_mismatch: 21,
} as const satisfies Readonly<Record<string, SnpRule>>

export type SnpCode = keyof typeof SNP_CODES

export function refuseReport(code: SnpCode, message: string): ProviderEvidenceError<SnpCode> {
  return new ProviderEvidenceError(code, message)
}
