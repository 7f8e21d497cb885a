import { hasSignedHash, type KeptAnswer, keptProofOf, keptResponseOf } from '../compare-exchange.ts'
import { PROOF_MEMBERS } from '../completion-hash.ts'
import { DIALECTS, dialectOfRequest } from '../dialects/dialects.ts'
import { ProofError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { type JsonObject, memberOf } from '../json/value.ts'
import { parseReceipt } from '../receipt.ts'
import type { Unanswered } from '../unanswered.ts'
import { type BundleRecord, type EvidenceBundle, parseEvidenceBundle } from './bundle.ts'
import { BUNDLE_FORMAT } from './bundle-forms.ts'
import { keptEventsOf } from './kept-events.ts'

/** Writes evidence as one line of canonical JSON: a file, or a line of one. */
export function writeEvidence(evidence: EvidenceBundle): string {
  return `${canonicalizeJson({ ...evidence })}\n`
}

/**
 * Makes the evidence of a call, without its anchor, from the request and the answer that its caller
 * kept. Throws FormatError as parseEvidenceBundle does. Does NOT check that the parts belong
 * together: see verifyBundle.
 */
export function saveEvidence(
  { request, answer }: { readonly request: JsonObject; readonly answer: KeptAnswer },
  stated: {
    /** The boot configuration of the enclave. */
    readonly configuration: JsonObject
    readonly unanswered: readonly Unanswered[]
  },
): EvidenceBundle {
  const { configuration, unanswered } = stated
  const name = dialectOfRequest(request)
  const shown = keptProofOf(answer, name)
  const proof = Object.fromEntries(
    PROOF_MEMBERS.map((member) => [member, memberOf(shown, member) ?? null]),
  )
  const receipt = parseReceipt(memberOf(shown, 'receipt') ?? null)
  const response = keptResponseOf(answer, name)
  return parseEvidenceBundle({
    format: BUNDLE_FORMAT,
    version: 1,
    record: {
      request: DIALECTS[name].hashedRequest(request),
      // The chunks of a stream without usage give another response than the signed one.
      ...(hasSignedHash(shown, response) ? { response } : { response_hash: receipt.response_hash }),
      ...proof,
      created_at: Math.floor(receipt.finished_at / 1000),
    },
    boot_configuration: configuration,
    transaction: null,
    block: null,
    ...keptEventsOf(answer),
    ...(unanswered.length === 0 ? {} : { unanswered }),
  })
}

/**
 * Adds the anchor from a gateway's evidence of the same call to what its caller kept, and the
 * source and the provider's document, if they are missing. All other members stay as they were
 * kept: a part that was redacted stays left out. Throws ProofError `other_evidence` naming the
 * member that differs. Does NOT check the result: see verifyBundle.
 */
export function completeEvidence(own: EvidenceBundle, given: EvidenceBundle): EvidenceBundle {
  for (const member of SIGNED_MEMBERS)
    if (canonicalizeJson(own.record[member]) !== canonicalizeJson(given.record[member]))
      throw new ProofError(
        'other_evidence',
        `expected evidence of the same call: ${member} differs from the kept one`,
      )
  const { no_block: _, provider_evidence: part, ...kept } = own
  const { source, transaction, block, no_block } = given
  const provider = part?.document === undefined ? (given.provider_evidence ?? part) : part
  return {
    ...(source === undefined ? {} : { source }),
    ...kept,
    record: withAnchor(fillStream(own, given.record), given.record),
    transaction,
    block,
    ...(no_block === undefined ? {} : { no_block }),
    ...(provider === undefined ? {} : { provider_evidence: provider }),
  }
}

const SIGNED_MEMBERS = ['hash', 'public_key', 'signature', 'receipt'] as const

function withAnchor(
  { reanchored: _, ...record }: BundleRecord,
  { log, tx_hash, reanchored }: BundleRecord,
): BundleRecord {
  return { ...record, log, tx_hash, ...(reanchored === undefined ? {} : { reanchored }) }
}

/** A stream without its usage gets the response, which its events show anyway. */
function fillStream({ record, events }: EvidenceBundle, given: BundleRecord): BundleRecord {
  if (events === undefined || 'response' in record || !('response' in given)) return record
  if (!hasSignedHash({ ...record }, given.response)) return record
  const { response_hash: _, ...rest } = record
  return { ...rest, response: given.response }
}
