import { hashCompletion } from '../completion-hash.ts'
import { ownMembers } from '../own-members.ts'
import type { BundleRecord, EvidenceBundle, RequestPart, ResponsePart } from './bundle.ts'

/** The parts of a completion that can be left out of a bundle. */
export type RedactablePart = 'request' | 'response'

/**
 * The bundle with only the hash in place of the request, of the response, or of both. The rest stays verifiable:
 * who signed, the receipt, the log, the anchor. A part that is left out already stays so. The hash is of the part
 * itself, so that leaving out a part that was altered does not hide it.
 *
 * Does NOT hide: the length of time, models and provider, which the receipt names; nor a part that can be guessed,
 * since its hash is without salt and each guess can be tried; nor what the other part repeats of it.
 */
export function redactBundle(
  bundle: EvidenceBundle,
  parts: { readonly request?: boolean; readonly response?: boolean },
): EvidenceBundle {
  const { record } = bundle
  const { request, response } = ownMembers(parts)
  const withoutRequest = request === true ? redactRequest(record) : record
  return { ...bundle, record: response === true ? redactResponse(withoutRequest) : withoutRequest }
}

/** The parts that the record's hash alone is left of. */
export function redactedParts(record: BundleRecord): readonly RedactablePart[] {
  return [
    ...('request' in record ? [] : ['request' as const]),
    ...('response' in record ? [] : ['response' as const]),
  ]
}

function redactRequest(record: BundleRecord): BundleRecord {
  if (!('request' in record)) return record
  const { request, ...rest } = record
  const part: RequestPart = { request_hash: hashCompletion({ request, response: {} }).requestHash }
  return { ...part, ...rest }
}

function redactResponse(record: BundleRecord): BundleRecord {
  if (!('response' in record)) return record
  const { response, ...rest } = record
  const { version } = record.receipt
  const part: ResponsePart = {
    response_hash: hashCompletion({ request: {}, response, version }).responseHash,
  }
  return { ...part, ...rest }
}
