import { refuseEvidence } from './evidence-codes.ts'
import { EVIDENCE_PATHS, type ProviderEvidence } from './evidence-document.ts'

/**
 * Returns the body of the first answer from the kind's path. Throws ProviderEvidenceError unless
 * its status is 200.
 */
export function findAnswer({ kind, responses }: ProviderEvidence): Uint8Array<ArrayBuffer> {
  const path = EVIDENCE_PATHS[kind]
  const answer = responses.find(({ url }) => new URL(url).pathname === path)
  if (!answer) throw refuseEvidence('answer_missing', `expected an answer from ${path}`)
  if (answer.status !== 200)
    throw refuseEvidence('answer_status', `expected status 200 from ${path}, got ${answer.status}`)
  return answer.body
}
