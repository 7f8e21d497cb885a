import type { Acceptance, Refusal } from './case.ts'
import { certificateAcceptances, certificateRefusals } from './certificate-cases.ts'
import { chainAcceptances, chainRefusals } from './chain-cases.ts'
import { constraintAcceptances, constraintRefusals } from './constraint-cases.ts'
import { derRefusals } from './der-cases.ts'
import { envelopeAcceptances, envelopeRefusals } from './envelope-cases.ts'
import { payloadAcceptances, payloadRefusals } from './payload-cases.ts'
import { policyAcceptances, policyRefusals } from './policy-cases.ts'
import { releaseAcceptances, releaseRefusals } from './release-cases.ts'

/** Documents that are accepted, for each rule. */
export const acceptances: readonly Acceptance[] = [
  ...envelopeAcceptances,
  ...payloadAcceptances,
  ...certificateAcceptances,
  ...chainAcceptances,
  ...constraintAcceptances,
  ...policyAcceptances,
  ...releaseAcceptances,
]

/** Documents that break one rule, for each code. */
export const refusals: readonly Refusal[] = [
  ...envelopeRefusals,
  ...payloadRefusals,
  ...derRefusals,
  ...certificateRefusals,
  ...chainRefusals,
  ...constraintRefusals,
  ...policyRefusals,
  ...releaseRefusals,
]
