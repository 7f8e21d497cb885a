import type { AttestationCode, RuleNumber } from '#attestation/nitro/attestation-error.ts'
import type { AttestationPolicy } from '#attestation/nitro/policy.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'
import { standardChain } from '../nitro-builder/document-builder.ts'

/** The common part of all cases: a document, and how it is verified. */
type Verification = {
  readonly name: string
  readonly document: Uint8Array
  readonly policy?: Partial<AttestationPolicy>
  /** Default MADE_AT. */
  readonly at?: Date
}

/** A document that breaks one rule, and the code of its refusal. */
export type Refusal = Verification & { readonly code: AttestationCode }

/** A document at the edge of a rule that is still accepted. */
export type Acceptance = Verification & { readonly rule: RuleNumber }

/** Accepts the builder's documents with any measurements. */
export function policyOf({ policy }: Verification): AttestationPolicy {
  return { measurements: 'any', roots: [standardChain.rootSha256], ...policy }
}

export function timeOf({ at }: Verification): Date {
  return at ?? MADE_AT
}
