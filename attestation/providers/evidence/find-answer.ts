import { refuseEvidence } from './evidence-codes.ts'
import type { ProviderEvidence } from './evidence-document.ts'

/** The body of the first kept answer from `path`, with status 200. Throws ProviderEvidenceError. */
export function findAnswer({ responses }: ProviderEvidence, path: string): Uint8Array<ArrayBuffer> {
  const answer = responses.find(({ url }) => new URL(url).pathname === path)
  if (!answer) throw refuseEvidence('answer_missing', `expected an answer from ${path}`)
  if (answer.status !== 200)
    throw refuseEvidence('answer_status', `expected status 200 from ${path}, got ${answer.status}`)
  return answer.body
}
