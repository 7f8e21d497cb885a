/**
 * The stages of checking a document, in order. A stage begins only if the previous stage passed.
 */
export const STAGES = ['decode', 'parse', 'chain', 'signature', 'policy'] as const

type AttestationStage = (typeof STAGES)[number]

/** The number of a validation rule, as in rules.md. */
export type RuleNumber = keyof typeof RULES

/** All rules, each with its stage and the statement that is true if the rule passed. */
export const RULES = {
  1: { stage: 'decode', title: 'size of the document' },
  2: { stage: 'decode', title: 'COSE_Sign1 envelope, nothing after it' },
  3: { stage: 'decode', title: 'protected header is ES384 and nothing else' },
  4: { stage: 'decode', title: 'unprotected header is empty' },
  5: { stage: 'decode', title: 'sizes of payload and signature' },
  6: { stage: 'decode', title: 'strict CBOR' },
  7: { stage: 'parse', title: 'payload is one map with unique text keys' },
  8: { stage: 'parse', title: 'module_id, digest and timestamp' },
  9: { stage: 'parse', title: 'PCRs' },
  10: { stage: 'parse', title: 'sizes of certificate and cabundle' },
  11: { stage: 'parse', title: 'public_key, user_data and nonce' },
  12: { stage: 'parse', title: 'not a NitroTPM document' },
  13: { stage: 'chain', title: 'cabundle begins with a trusted root' },
  14: { stage: 'chain', title: 'each certificate signed by the one before it' },
  15: { stage: 'chain', title: 'strict X.509 v3 certificates on P-384' },
  16: { stage: 'chain', title: 'issuer and subject names chain' },
  17: { stage: 'chain', title: 'CA and leaf constraints' },
  18: { stage: 'chain', title: 'validity of all certificates' },
  19: { stage: 'chain', title: 'revocation' },
  20: { stage: 'signature', title: 'signature of the document' },
  21: { stage: 'policy', title: 'freshness' },
  22: { stage: 'policy', title: 'nonce' },
  23: { stage: 'policy', title: 'debug mode' },
  24: { stage: 'policy', title: 'expected measurements' },
  25: { stage: 'policy', title: 'bindings of PCR4 and common names' },
} as const satisfies Readonly<Record<number, { stage: AttestationStage; title: string }>>

/**
 * All reasons for refusing a document, each with the rule that the document breaks. Codes are
 * stable and distinct.
 */
export const ATTESTATION_CODES = {
  document_too_large: 1,
  envelope_tag: 2,
  envelope_shape: 2,
  envelope_trailing_bytes: 2,
  protected_header_malformed: 3,
  protected_header_duplicate_key: 3,
  protected_header_crit: 3,
  protected_header_algorithm: 3,
  protected_header_unexpected_key: 3,
  unprotected_header_malformed: 4,
  unprotected_header_not_empty: 4,
  payload_malformed: 5,
  payload_size: 5,
  signature_malformed: 5,
  signature_size: 5,
  cbor_truncated: 6,
  cbor_not_minimal: 6,
  cbor_reserved: 6,
  cbor_tag: 6,
  cbor_float: 6,
  cbor_simple: 6,
  cbor_chunked_string: 6,
  cbor_indefinite: 6,
  cbor_stray_break: 6,
  cbor_too_deep: 6,
  cbor_key_type: 6,
  cbor_duplicate_key: 6,
  cbor_invalid_utf8: 6,
  payload_not_map: 7,
  payload_key_type: 7,
  payload_duplicate_key: 7,
  payload_trailing_bytes: 7,
  module_id_invalid: 8,
  digest_invalid: 8,
  timestamp_invalid: 8,
  pcrs_malformed: 9,
  pcrs_count: 9,
  pcr_index_invalid: 9,
  pcr_duplicate_index: 9,
  pcr_value_invalid: 9,
  pcr_missing: 9,
  certificate_size: 10,
  cabundle_malformed: 10,
  cabundle_count: 10,
  cabundle_certificate_size: 10,
  public_key_invalid: 11,
  user_data_invalid: 11,
  nonce_invalid: 11,
  nitrotpm_document: 12,
  root_untrusted: 13,
  chain_order: 14,
  chain_repeated_certificate: 14,
  certificate_signature_malformed: 14,
  certificate_signature_invalid: 14,
  certificate_der: 15,
  certificate_version: 15,
  certificate_algorithm_mismatch: 15,
  certificate_algorithm: 15,
  certificate_key_type: 15,
  certificate_curve: 15,
  certificate_point: 15,
  certificate_duplicate_extension: 15,
  certificate_critical_extension: 15,
  issuer_mismatch: 16,
  ca_basic_constraints: 17,
  ca_key_usage: 17,
  path_length_exceeded: 17,
  leaf_is_ca: 17,
  leaf_key_usage: 17,
  certificate_not_yet_valid: 18,
  certificate_expired: 18,
  certificate_revoked: 19,
  revocation_list_foreign: 19,
  revocation_list_not_yet_valid: 19,
  revocation_list_expired: 19,
  signature_out_of_range: 20,
  signature_invalid: 20,
  timestamp_outside_leaf: 21,
  document_too_old: 21,
  document_from_future: 21,
  nonce_missing: 22,
  nonce_mismatch: 22,
  debug_mode: 23,
  measurement_zero: 23,
  measurements_not_given: 24,
  measurement_missing: 24,
  measurement_mismatch: 24,
  release_not_yet: 24,
  release_expired: 24,
  release_revoked: 24,
} as const satisfies Readonly<Record<string, RuleNumber>>

export type AttestationCode = keyof typeof ATTESTATION_CODES

/**
 * The document must not be trusted. `code` is the failed check, which belongs to `rule`. The
 * message says what was expected and where. It never contains bytes of the document.
 */
export class AttestationError extends Error {
  override readonly name = 'AttestationError'
  readonly code: AttestationCode
  readonly rule: RuleNumber

  constructor(code: AttestationCode, message: string) {
    super(message)
    this.code = code
    this.rule = ATTESTATION_CODES[code]
  }

  get stage(): AttestationStage {
    return RULES[this.rule].stage
  }
}

/** A document refused with one of these codes can be genuine: the reader does not accept it. */
const POLICY_CODES: ReadonlySet<string> = new Set<AttestationCode>([
  'root_untrusted',
  'debug_mode',
  'measurement_zero',
  'measurement_missing',
  'measurement_mismatch',
  'release_not_yet',
  'release_expired',
  'release_revoked',
])

export function isOfPolicy(code: string): boolean {
  return POLICY_CODES.has(code)
}
