import { ProviderEvidenceError } from '../provider-error.ts'

/** The checks in the order of the report. Each text is true if its check passed. */
export const GPU_CHECKS = {
  'evidence layout': 'an SPDM request for all measurements and its signed response',
  nonce: 'the evidence is for the expected nonce',
  'device chain': "the device's chain leads to NVIDIA's root",
  'evidence signature': "the device's key signed the evidence",
  'firmware id': 'the certificate is for the firmware that the device reports',
  'reference values': "the measurements are NVIDIA's reference values",
  'device revocation': "NVIDIA did not revoke the device's chain",
} as const satisfies Readonly<Record<string, string>>

export type GpuCheckName = keyof typeof GPU_CHECKS

/** The checks of NRAS, NVIDIA's remote attestation service. */
export const NRAS_CHECKS = {
  answer: 'an overall token, a token for each device, and a key set',
  tokens: 'the issuer signed every token, and all are valid at the time',
  'overall token': 'the overall token names exactly the devices',
  'device tokens': 'the overall token has the digest of every other',
  'token nonce': 'every token is for the expected nonce',
  'overall result': 'the service states that attestation succeeded',
  'device results': 'the service states good measurements, secure boot and no debugging',
} as const satisfies Readonly<Record<string, string>>

export type NrasCheckName = keyof typeof NRAS_CHECKS

/** The check that each rule of rules.md belongs to. */
export const NVIDIA_RULES = {
  1: 'evidence layout',
  2: 'evidence layout',
  3: 'evidence layout',
  4: 'evidence layout',
  5: 'nonce',
  6: 'device chain',
  7: 'evidence signature',
  8: 'firmware id',
  9: 'answer',
  10: 'tokens',
  11: 'overall token',
  12: 'device tokens',
  13: 'token nonce',
  14: 'overall result',
  15: 'device results',
} as const satisfies Readonly<Record<number, GpuCheckName | NrasCheckName>>

export type NvidiaRule = keyof typeof NVIDIA_RULES

/** The rule that each code belongs to. Codes are stable. */
export const NVIDIA_CODES = {
  evidence_size: 1,
  evidence_truncated: 1,
  spdm_request: 2,
  spdm_response: 2,
  measurement_block: 3,
  measurement_record: 3,
  opaque_data: 4,
  opaque_duplicate: 4,
  nonce_mismatch: 5,
  pem_malformed: 6,
  root_untrusted: 6,
  chain_order: 6,
  chain_repeated_certificate: 6,
  certificate_signature_malformed: 6,
  certificate_signature_invalid: 6,
  certificate_der: 6,
  certificate_version: 6,
  certificate_algorithm_mismatch: 6,
  certificate_algorithm: 6,
  certificate_key_type: 6,
  certificate_curve: 6,
  certificate_point: 6,
  certificate_duplicate_extension: 6,
  certificate_critical_extension: 6,
  issuer_mismatch: 6,
  ca_basic_constraints: 6,
  ca_key_usage: 6,
  path_length_exceeded: 6,
  leaf_is_ca: 6,
  leaf_key_usage: 6,
  certificate_not_yet_valid: 6,
  certificate_expired: 6,
  signature_out_of_range: 7,
  signature_invalid: 7,
  firmware_id_missing: 8,
  firmware_id_mismatch: 8,
  answer_malformed: 9,
  key_set_malformed: 9,
  token_malformed: 10,
  token_algorithm: 10,
  token_key_unknown: 10,
  token_signature_invalid: 10,
  token_issuer: 10,
  token_not_yet_valid: 10,
  token_expired: 10,
  token_submodules: 11,
  token_digest_mismatch: 12,
  token_nonce_mismatch: 13,
  overall_result_false: 14,
  device_result_failed: 15,
} as const satisfies Readonly<Record<string, NvidiaRule>>

export type NvidiaCode = keyof typeof NVIDIA_CODES

export function refuseGpu(code: NvidiaCode, message: string): ProviderEvidenceError<NvidiaCode> {
  return new ProviderEvidenceError(code, message)
}
