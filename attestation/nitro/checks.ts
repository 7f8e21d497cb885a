import { encodeHex, equalBytes } from '../bytes.ts'
import type { Release } from '../release/release.ts'
import { matchRelease, type ReleaseEntry } from '../release/release-list.ts'
import { nameRelease } from '../release/release-name.ts'
import { describeTime } from '../release/release-signatures.ts'
import { AttestationError } from './attestation-error.ts'
import type { Certificate } from './certificate.ts'
import type { AttestationDocument } from './document.ts'
import type { MeasurementSet, ResolvedPolicy } from './policy.ts'

/**
 * Checks the document's time (rule 21), Unix milliseconds. It must be within the validity of its
 * leaf and, except in historical mode, near `atMs`. Throws AttestationError.
 */
export function checkFreshness(
  { timestampMs }: AttestationDocument,
  {
    policy,
    leaf,
    atMs,
  }: { readonly policy: ResolvedPolicy; readonly leaf: Certificate; readonly atMs: number },
): void {
  if (timestampMs < leaf.notBeforeMs || timestampMs > leaf.notAfterMs) {
    throw new AttestationError(
      'timestamp_outside_leaf',
      "expected the timestamp within the leaf's validity",
    )
  }
  if (policy.mode === 'historical') return
  if (timestampMs < atMs - policy.maxAgeMs) {
    const message = `expected an age of at most ${policy.maxAgeMs} ms, got ${atMs - timestampMs}`
    throw new AttestationError('document_too_old', message)
  }
  if (timestampMs > atMs + policy.futureSkewMs) {
    throw new AttestationError(
      'document_from_future',
      `expected at most ${policy.futureSkewMs} ms into the future, got ${timestampMs - atMs}: ` +
        "is this machine's clock right?",
    )
  }
}

/**
 * Checks the nonce in constant time (rule 22). An absent nonce differs from an empty nonce. Throws
 * AttestationError.
 */
export function checkNonce({ nonce }: AttestationDocument, expected: Uint8Array | null): void {
  if (expected === null) return
  if (nonce === null) throw new AttestationError('nonce_missing', 'expected a nonce, got none')
  if (!equalBytes(nonce, expected))
    throw new AttestationError('nonce_mismatch', 'expected another nonce')
}

/**
 * True if the enclave runs in debug mode: PCR0, 1 and 2 are all zero. Its host can read its memory,
 * and its code is not known.
 */
export function isDebugMode({ pcrs }: AttestationDocument): boolean {
  return [0, 1, 2].every((index) => isZero(pcrs.get(index) ?? new Uint8Array()))
}

const NAMED_RELEASES_MAX = 3

function nameReleases(entries: readonly ReleaseEntry[]): string {
  const named = entries.slice(-NAMED_RELEASES_MAX).map(({ release }) => nameRelease(release))
  const more = entries.length - named.length
  return `${named.join(' or ')}${more > 0 ? ` or ${more} more` : ''}`
}

/** Refuses debug mode unless `allowDebug` is true (rule 23). Throws AttestationError. */
export function checkDebugMode(document: AttestationDocument, allowDebug: boolean): void {
  if (allowDebug || !isDebugMode(document)) return
  throw new AttestationError('debug_mode', 'expected an enclave that is not in debug mode')
}

export type MatchedCode = {
  /** Index of the first set that matched. Null if none matched, or any code is accepted. */
  readonly matchedSet: number | null
  /**
   * The release that matched, accepted at the document's time. Null if a set matched, or any code
   * is accepted.
   */
  readonly release: Release | null
}

/**
 * Returns the first expected set whose values are all in the document. If no set matches, returns
 * the release that matches (rules 23 and 24). A value of zeros matches no set: it is a PCR that was
 * not measured. Throws AttestationError.
 */
export function checkMeasurements(
  document: AttestationDocument,
  { measurements: expected, releases }: Pick<ResolvedPolicy, 'measurements' | 'releases'>,
): MatchedCode {
  if (expected === 'any') return { matchedSet: null, release: null }
  if (expected.length + releases.length === 0 || !expected.every((set) => set.size > 0)) {
    const message = 'expected at least one measurement in each set to compare with, got none'
    throw new AttestationError('measurements_not_given', message)
  }
  const refusals = expected.map((set) => refusalOf(document.pcrs, set))
  const found = refusals.indexOf(null)
  if (found >= 0) return { matchedSet: found, release: null }
  if (releases.length > 0) return { matchedSet: null, release: checkRelease(document, releases) }
  throw refusals[0] ?? new AttestationError('measurement_mismatch', 'expected another measurement')
}

function checkRelease(
  document: AttestationDocument,
  releases: ResolvedPolicy['releases'],
): Release {
  const match = matchRelease(document, releases)
  switch (match.kind) {
    case 'accepted':
      return match.release
    case 'refused': {
      const made = describeTime(document.timestampMs)
      throw new AttestationError(
        `release_${match.reason}`,
        `${match.message}; the document was made ${made}`,
      )
    }
    case 'unknown':
      throw new AttestationError(
        'measurement_mismatch',
        `expected the code of ${nameReleases(releases)}, got ${encodeHex(document.pcrs.get(0) ?? new Uint8Array())} in PCR0`,
      )
  }
}

function refusalOf(
  pcrs: ReadonlyMap<number, Uint8Array>,
  set: MeasurementSet,
): AttestationError | null {
  for (const [index, value] of set) {
    const pcr = pcrs.get(index)
    if (!pcr)
      return new AttestationError('measurement_missing', `expected PCR${index}, which is not there`)
    if (isZero(value)) {
      return new AttestationError('measurement_zero', `PCR${index}: zeros match no measurement`)
    }
    if (!equalBytes(pcr, value)) {
      return new AttestationError(
        'measurement_mismatch',
        `PCR${index}: expected ${encodeHex(value)}, got ${encodeHex(pcr)}`,
      )
    }
  }
  return null
}

function isZero(value: Uint8Array): boolean {
  return value.every((byte) => byte === 0)
}
