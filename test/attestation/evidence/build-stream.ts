import { isProofMember } from '#attestation/completion-hash.ts'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import { type EvidenceBundle, redactBundle } from '#attestation/evidence/bundle.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { hashChunks } from '#attestation/record-hash.ts'
import { CHUNKS, USAGE } from '../kept-streams.ts'
import { type BuiltEvidence, buildEvidence } from './build-evidence.ts'

const REQUEST: JsonObject = {
  model: 'demo/echo',
  messages: [{ role: 'user', content: 'Pay?' }],
  stream: true,
}

/**
 * Evidence of a chat stream whose caller did not ask for its usage: the response is left out, and
 * the caller's chunks are there.
 */
export function buildStream(): BuiltEvidence & { readonly chunks: readonly JsonObject[] } {
  const built = buildEvidence({
    record: {
      request: REQUEST,
      response: assembleCompletion([...CHUNKS, USAGE]),
      streamHash: hashChunks(CHUNKS),
    },
  })
  const proof = Object.fromEntries(
    Object.entries(built.bundle.record).filter(([name]) => isProofMember(name)),
  ) as JsonObject
  const chunks = CHUNKS.with(-1, { ...CHUNKS.at(-1), ...proof })
  return { ...built, chunks, bundle: withChunks(built.bundle, chunks) }
}

export function withChunks(bundle: EvidenceBundle, chunks: readonly JsonObject[]): EvidenceBundle {
  return {
    ...redactBundle(bundle, { response: true }),
    events: chunks.map((data) => ({ data })),
  }
}
