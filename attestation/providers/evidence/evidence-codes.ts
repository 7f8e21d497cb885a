import { orRefuse, ProviderEvidenceError } from '../provider-error.ts'

/** The checks in the order of the report. Each text is true if its check passed. */
export const EVIDENCE_CHECKS = {
  'evidence document': 'the bytes are a provider evidence',
  provider: 'the evidence is of the kind and the origin that the policy names',
  age: 'the block of the nonce is of the accepted time',
  answer: "the provider's answer has the form of its kind",
  challenge: 'the answer is for the nonce',
  collateral: 'what was kept of the makers of hardware has its form',
  hardware: 'the answer has evidence of hardware that the policy accepts',
  'key binding': 'the hardware states the TLS keys of the provider',
  'block nonce':
    'the answer is for a nonce that is made of a block and the origin, so it is not older',
  code: 'the code is accepted',
  GPU: "NVIDIA's devices signed evidence for the nonce",
  weights: 'the machine that answered measured accepted weights',
} as const satisfies Readonly<Record<string, string>>

export type EvidenceCheckName = keyof typeof EVIDENCE_CHECKS

/** Each code belongs to one check. Codes are stable. */
export const EVIDENCE_CODES = {
  evidence_size: 'evidence document',
  evidence_malformed: 'evidence document',
  provider_kind: 'provider',
  provider_origin: 'provider',
  block_missing: 'block nonce',
  block_nonce_mismatch: 'block nonce',
  block_not_on_chain: 'block nonce',
  evidence_from_future: 'age',
  evidence_too_old: 'age',
  answer_missing: 'answer',
  answer_status: 'answer',
  answer_malformed: 'answer',
  challenge_mismatch: 'challenge',
  collateral_malformed: 'collateral',
  tee_not_accepted: 'hardware',
  tls_key_missing: 'key binding',
  key_binding_mismatch: 'key binding',
  keyset_digest_mismatch: 'key binding',
  keyset_expired: 'key binding',
  configuration_mismatch: 'key binding',
  build_malformed: 'code',
  configuration_not_accepted: 'code',
  gpu_missing: 'GPU',
  gpu_malformed: 'GPU',
  gpu_refused: 'GPU',
  gpu_repeated: 'GPU',
  weights_unknown: 'weights',
  weights_not_accepted: 'weights',
} as const satisfies Readonly<Record<string, EvidenceCheckName>>

export type ProviderEvidenceCode = keyof typeof EVIDENCE_CODES

export function refuseEvidence(
  code: ProviderEvidenceCode,
  message: string,
): ProviderEvidenceError<ProviderEvidenceCode> {
  return new ProviderEvidenceError(code, message)
}

/** Runs `read`. Turns a FormatError into a refusal with `code`. */
export function parsedAs<Value>(code: ProviderEvidenceCode, read: () => Value): Value {
  return orRefuse(refuseEvidence, code, read)
}
