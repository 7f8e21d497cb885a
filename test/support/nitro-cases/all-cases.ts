import type { Acceptance, Refusal } from './case.ts'
import { certificateAcceptances, certificateRefusals } from './certificate-cases.ts'
import { chainAcceptances, chainRefusals } from './chain-cases.ts'
import { envelopeAcceptances, envelopeRefusals } from './envelope-cases.ts'
import { payloadAcceptances, payloadRefusals } from './payload-cases.ts'
import { policyAcceptances, policyRefusals } from './policy-cases.ts'

/** Documents that are accepted, for each rule. */
export const acceptances: readonly Acceptance[] = [
  ...envelopeAcceptances,
  ...payloadAcceptances,
  ...certificateAcceptances,
  ...chainAcceptances,
  ...policyAcceptances,
]

/** Documents that break one rule, for each code. */
export const refusals: readonly Refusal[] = [
  ...envelopeRefusals,
  ...payloadRefusals,
  ...certificateRefusals,
  ...chainRefusals,
  ...policyRefusals,
]
