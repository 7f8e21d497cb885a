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
 * Adds the anchor from a gateway's evidence of the same call to what its caller kept. Throws
 * ProofError `other_evidence` naming the member that differs. Does NOT check the result: see
 * verifyBundle.
 */
export function completeEvidence(own: EvidenceBundle, given: EvidenceBundle): EvidenceBundle {
  for (const member of SIGNED_MEMBERS)
    if (canonicalizeJson(own.record[member]) !== canonicalizeJson(given.record[member]))
      throw new ProofError(
        'other_evidence',
        `expected evidence of the same call: ${member} differs from the kept one`,
      )
  const { record, events, idempotent, unanswered } = own
  return {
    ...given,
    record: fillRecord(given.record, record),
    ...(events === undefined ? {} : { events }),
    ...(idempotent === undefined ? {} : { idempotent }),
    ...(unanswered === undefined ? {} : { unanswered }),
  }
}

const SIGNED_MEMBERS = ['hash', 'public_key', 'signature', 'receipt'] as const

/** Fills the parts that a record leaves out with those of another. */
function fillRecord(record: BundleRecord, other: BundleRecord): BundleRecord {
  const filled =
    'request' in record || !('request' in other) ? record : withRequest(record, other.request)
  return 'response' in filled || !('response' in other)
    ? filled
    : withResponse(filled, other.response)
}

function withRequest(
  { request_hash: _, ...rest }: BundleRecord & { readonly request_hash: string },
  request: JsonObject,
): BundleRecord {
  return { ...rest, request }
}

function withResponse(
  { response_hash: _, ...rest }: BundleRecord & { readonly response_hash: string },
  response: JsonObject,
): BundleRecord {
  return { ...rest, response }
}
