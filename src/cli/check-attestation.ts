import { decodeBase64, encodeHex, equalBytes } from '../../attestation/bytes.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '../../attestation/json/value.ts'
import { AttestationError } from '../../attestation/nitro/attestation-error.ts'
import type { AttestationFacts } from '../../attestation/nitro/facts.ts'
import { type AttestationPolicy, FUTURE_SKEW_MS_DEFAULT } from '../../attestation/nitro/policy.ts'
import type { AttestationVerifier } from '../../attestation/nitro/verify-attestation.ts'
import { nameRelease, releaseName } from '../../attestation/release/accepted-releases.ts'
import { configurationOf } from '../../attestation/release/release.ts'
import type { Check, Holder } from './verify-report.ts'

/**
 * Checks a record's attestation document at the document's own time, and that the record was made during the life of
 * the document. Without a policy the check is not made. That the document carries the record's key is a check of verifyRecord.
 *
 * Does NOT prove when the record was made: both times are the enclave's side's; the anchor shows it was not later.
 */
export async function checkAttestation(
  record: Json,
  policy: AttestationPolicy | null,
  verifier: AttestationVerifier,
): Promise<{ readonly check: Check; readonly holder: Holder }> {
  const give = (outcome: Check['outcome'], detail: string, holder: Holder = null) => ({
    check: { name: 'attestation', outcome, detail },
    holder,
  })
  if (policy === null) return give('not checked', 'no expected measurements given')
  try {
    const members = isJsonObject(record) ? record : {}
    const facts = await verifier.verify(documentOf(members), { ...policy, mode: 'historical' }, new Date(0))
    checkLifetime(members, facts)
    checkConfiguration(facts)
    return give('passed', describe(facts, policy), {
      code: policy.measurements === 'any' ? 'any' : 'expected',
      release: facts.release && releaseName(facts.release),
      root: policy.roots === undefined ? 'AWS' : 'given',
    })
  } catch (fault) {
    return give('failed', reasonOf(fault))
  }
}

function documentOf(members: JsonObject): Uint8Array {
  const text = memberOf(members, 'attestation')
  if (typeof text !== 'string') throw new TypeError('expected attestation to be a string')
  return decodeBase64(text)
}

function checkLifetime(members: JsonObject, facts: AttestationFacts): void {
  const receipt = memberOf(members, 'receipt')
  const finishedAt = isJsonObject(receipt) ? memberOf(receipt, 'finished_at') : undefined
  if (typeof finishedAt !== 'number') throw new TypeError('expected a receipt with finished_at')
  const endMs = Math.min(...facts.certificates.map(({ notAfterMs }) => notAfterMs))
  if (finishedAt < facts.timestampMs - FUTURE_SKEW_MS_DEFAULT || finishedAt > endMs)
    throw new RangeError(
      `expected the completion between ${isoOf(facts.timestampMs)} and ${isoOf(endMs)}, when the document was valid, ` +
        `but it finished ${isoOf(finishedAt)}`,
    )
}

/**
 * The image of a release has its configuration in it: a document of that image that names another
 * is not of it.
 */
function checkConfiguration({ release, userData }: AttestationFacts): void {
  const expected = release && configurationOf(release)
  if (expected === null || (userData !== null && equalBytes(userData, expected))) return
  throw new RangeError(
    `expected the configuration of the release, ${encodeHex(expected)}, got ${userData === null ? 'none' : encodeHex(userData)}`,
  )
}

function describe(
  { moduleId, timestampMs, measurements, release, isDebugMode }: AttestationFacts,
  policy: AttestationPolicy,
): string {
  const code =
    policy.measurements === 'any'
      ? `any code was accepted; PCR0 is ${encodeHex(measurements.get(0) ?? new Uint8Array())}`
      : release
        ? `the measurements are those of ${nameRelease(release)}`
        : 'the measurements are the expected ones'
  return `${moduleId} at ${isoOf(timestampMs)}: ${code}${isDebugMode ? '; IN DEBUG MODE' : ''}`
}

function isoOf(timeMs: number): string {
  const time = new Date(timeMs)
  return Number.isNaN(time.getTime()) ? String(timeMs) : time.toISOString()
}

function reasonOf(fault: unknown): string {
  if (fault instanceof AttestationError) return `${fault.code}: ${fault.message}`
  return fault instanceof Error ? fault.message : 'unknown fault'
}
