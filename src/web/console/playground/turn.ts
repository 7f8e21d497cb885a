import type { Check } from '#attestation/finding.ts'
import type { AnchoredEvidence } from '#client/anchored.ts'
import type { AffidavitErrorCode, Proof } from '#client/index.ts'

/** Why the client refused an answer, and the checks that the client had made. */
export type ClientRefusal = {
  readonly code: AffidavitErrorCode
  readonly message: string
  readonly checks: readonly Check<string>[]
}

export type TurnAnchor =
  | { readonly kind: 'waiting' }
  | { readonly kind: 'mined'; readonly evidence: AnchoredEvidence }
  | { readonly kind: 'unknown'; readonly fault: unknown }

export type Answer =
  /** Some text was received, but is not checked yet. */
  | { readonly kind: 'arriving' }
  | { readonly kind: 'checked'; readonly proof: Proof; readonly anchor: TurnAnchor }
  | { readonly kind: 'refused'; readonly refusal: ClientRefusal }
  /** There was no answer. */
  | { readonly kind: 'failed'; readonly fault: unknown }
  | { readonly kind: 'stopped' }

export type Turn = {
  readonly id: number
  readonly question: string
  readonly model: string
  readonly isEncrypted: boolean
  /** True if the answer may depend on another root than AWS's. */
  readonly isDevelopment: boolean
  readonly text: string
  readonly answer: Answer
}

export function adviceFor({ code }: ClientRefusal): string {
  switch (code) {
    case 'invalid_options':
      return 'Give another policy: the message says what is missing.'
    case 'unreachable':
    case 'gateway_error':
      return 'Try again. If the problem stays, tell the operator.'
    case 'not_anchored':
      return 'Look again later. If the problem stays, the chain or the relayer has stopped: tell the operator.'
    case 'no_notary':
    case 'unknown_notary':
    case 'unexpected_code':
    case 'unexpected_configuration':
    case 'invalid_document':
    case 'document_expired':
      return 'Do not send secrets here. Does your file come from this gateway, and from its latest start? If so, the gateway has another enclave than you expect.'
    case 'document_not_yet_valid':
      return 'Do not send secrets here. Is this machine’s clock right? Set the clock, and try again.'
    case 'no_encryption_key':
      return 'Wait a minute and try again. No enclave that you expect offers an encryption key now.'
    case 'invalid_request':
    case 'unsupported_call':
      return 'Change the message, the model or the credential.'
    default:
      return 'Do not use this answer: no enclave signed it. Keep the message, and tell the operator.'
  }
}

/** Says in words how many checks have each outcome. */
export function countChecks(checks: readonly Check<string>[]): string {
  const count = (outcome: Check<string>['outcome']) =>
    checks.filter((made) => made.outcome === outcome).length
  const words = [
    [count('passed'), 'passed'],
    [count('failed'), 'failed'],
    [count('not checked'), 'not checked'],
  ] as const
  return words
    .filter(([sum]) => sum > 0)
    .map(([sum, outcome]) => `${sum} ${outcome}`)
    .join(', ')
}
