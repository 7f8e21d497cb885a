import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { writeEvidence } from '#attestation/evidence/create-evidence.ts'
import type { AnchoredEvidence, KeptProof } from '#client/anchored.ts'
import type { Proof } from '#client/proof.ts'
import { buildCalls, EXCHANGES } from '../../../attestation/session/build-session.ts'

/** Three calls of a session, of which the last says so. */
export const ANCHORED = buildCalls({ exchanges: EXCHANGES.slice(0, 3) })

/** The part of a proof that a session file keeps. The evidence is not anchored yet. */
export function proofOf(call: EvidenceBundle | undefined): Proof {
  if (call === undefined) throw new Error('expected a call')
  const evidence = { ...call, transaction: null, block: null }
  return { evidence, save: () => writeEvidence(evidence) } as Proof
}

/** The gateway has the anchor of each call. */
export async function anchored({ evidence: kept }: KeptProof): Promise<AnchoredEvidence> {
  const evidence = ANCHORED.find(({ record }) => record.hash === kept.record.hash) ?? kept
  return { evidence, save: () => writeEvidence(evidence), report: {} as AnchoredEvidence['report'] }
}

export const neverAnchored = () => Promise.reject(new Error('expected no call of anchored'))
