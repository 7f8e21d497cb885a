import type { ReleaseEntry } from '../release/release-list.ts'
import { FIELD_BYTES_MAX, PCR_BYTES, PCRS_MAX } from './document.ts'
import { AWS_ROOT_SHA256 } from './roots.ts'

/** A document may be as old as its leaf can be: AWS's leaves live three hours and some seconds. */
export const AGE_MS_MAX_DEFAULT = 3 * 60 * 60 * 1000 + 60_000
/** Clocks of hosts that keep time differ by less; a fresh document carries milliseconds that `at` may lack. */
export const FUTURE_SKEW_MS_DEFAULT = 60_000

/** Measurements that must all be found: 48 bytes each by PCR index 0 to 31. */
export type MeasurementSet = ReadonlyMap<number, Uint8Array>

/** One certificate that its authority took back. */
export type RevokedCertificate = {
  /** DER of the issuer's name. */
  readonly issuer: Uint8Array
  /** Big-endian; leading zeros do not matter. */
  readonly serial: Uint8Array
}

/** What the caller demands of a document. */
export type AttestationPolicy = {
  /**
   * The code that is acceptable: the document matches when all values of at least one set are found in it. `'any'` says
   * out loud that whatever runs in the enclave is acceptable. No set, or an empty one, refuses every document.
   */
  readonly measurements: 'any' | readonly MeasurementSet[]
  /**
   * Releases that are acceptable beside those sets, each at its time, which is compared with the document's own
   * timestamp; from verifyRelease or verifyReleaseList. Default: none. Not with `'any'`, which would hide what they refuse.
   */
  readonly releases?: readonly ReleaseEntry[]
  /**
   * `current` (default): everything is valid at the caller's time. `historical`: certificates are valid at the
   * document's own timestamp and its age is not looked at; for documents of stored records, whose time is shown by
   * something else. A stolen enclave key could backdate a document, so this is never a default.
   */
  readonly mode?: 'current' | 'historical'
  /** Must be equal to the document's nonce, of 0 to 1024 bytes. Default: the nonce is not checked. */
  readonly nonce?: Uint8Array
  /** How long before the caller's time the document may have been made, milliseconds. Default AGE_MS_MAX_DEFAULT. */
  readonly maxAgeMs?: number
  /** How far after the caller's time it may be dated, milliseconds. Default FUTURE_SKEW_MS_DEFAULT. */
  readonly futureSkewMs?: number
  /** Accept enclaves in debug mode, whose memory and console the host can read. Default false. */
  readonly allowDebug?: boolean
  /** SHA-256 of the DER of each root that is trusted, instead of AWS's. See parseRoots. Default [AWS_ROOT_SHA256]. */
  readonly roots?: readonly Uint8Array[]
  /** Certificates to refuse. Default: none known, so revocation is not checked. */
  readonly revoked?: readonly RevokedCertificate[]
}

/** The caller's policy, or time, makes no sense; no document was looked at. Fix the call. */
export class PolicyError extends Error {
  override readonly name = 'PolicyError'
  readonly code = 'policy_invalid'
}

/** A policy with its defaults filled in. Null means not checked. */
export type ResolvedPolicy = {
  readonly measurements: 'any' | readonly MeasurementSet[]
  readonly releases: readonly ReleaseEntry[]
  readonly mode: 'current' | 'historical'
  readonly nonce: Uint8Array | null
  readonly maxAgeMs: number
  readonly futureSkewMs: number
  readonly allowDebug: boolean
  readonly roots: readonly Uint8Array[]
  readonly revoked: readonly RevokedCertificate[]
}

/** Gives the policy with defaults. Throws PolicyError for what no document could sensibly be checked against. */
export function resolvePolicy(policy: AttestationPolicy): ResolvedPolicy {
  const { measurements, releases = [], mode = 'current', nonce, maxAgeMs, futureSkewMs } = policy
  if (mode === 'historical' && (maxAgeMs !== undefined || futureSkewMs !== undefined)) {
    throw new PolicyError(
      'expected no maxAgeMs or futureSkewMs in historical mode, which does not look at age',
    )
  }
  checkMeasurementForm(measurements)
  if (measurements === 'any' && releases.length > 0)
    throw new PolicyError("expected no releases beside measurements of 'any'")
  if (nonce && nonce.length > FIELD_BYTES_MAX) {
    throw new PolicyError(`expected a nonce of at most ${FIELD_BYTES_MAX} bytes, got ${nonce.length}`)
  }
  return {
    measurements,
    releases,
    mode,
    nonce: nonce ?? null,
    maxAgeMs: durationOf('maxAgeMs', maxAgeMs ?? AGE_MS_MAX_DEFAULT),
    futureSkewMs: durationOf('futureSkewMs', futureSkewMs ?? FUTURE_SKEW_MS_DEFAULT),
    allowDebug: policy.allowDebug ?? false,
    roots: rootsOf(policy.roots ?? [AWS_ROOT_SHA256]),
    revoked: policy.revoked ?? [],
  }
}

const SHA256_BYTES = 32

function checkMeasurementForm(measurements: AttestationPolicy['measurements']): void {
  for (const set of measurements === 'any' ? [] : measurements) {
    for (const [index, value] of set) {
      if (!Number.isInteger(index) || index < 0 || index >= PCRS_MAX || value.length !== PCR_BYTES) {
        throw new PolicyError(`expected measurements of ${PCR_BYTES} bytes by index 0 to ${PCRS_MAX - 1}`)
      }
    }
  }
}

function durationOf(name: string, valueMs: number): number {
  if (valueMs >= 0) return valueMs
  throw new PolicyError(`expected ${name} to be 0 or more milliseconds, got ${valueMs}`)
}

function rootsOf(roots: readonly Uint8Array[]): readonly Uint8Array[] {
  if (roots.length === 0 || roots.some((root) => root.length !== SHA256_BYTES)) {
    throw new PolicyError(`expected one or more roots as SHA-256 fingerprints of ${SHA256_BYTES} bytes`)
  }
  return roots
}
