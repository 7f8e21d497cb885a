import { equalBytes } from '#attestation/bytes.ts'
import type { EifMeasurements } from '#attestation/eif/measure-eif.ts'
import { PCR_BYTES } from '#attestation/nitro/document.ts'
import type { AttestationPolicy } from '#attestation/nitro/policy.ts'
import { matchRelease } from '#attestation/release/release-list.ts'

export type ImageComparison =
  /** The reader expects no code. */
  | { readonly kind: 'not asked' }
  | { readonly kind: 'same' }
  | { readonly kind: 'other' }
  /** The image contradicts no value of a set, but the set has registers that no image has. */
  | { readonly kind: 'open'; readonly registers: readonly number[] }
  /** The release of this image is not accepted now. `message` may contain the operator's text. */
  | { readonly kind: 'refused'; readonly message: string }

/** Compares every register of each set. `nowMs` decides which releases are accepted. */
export function compareImage(
  { pcr0, pcr1, pcr2, pcr8 }: EifMeasurements,
  { measurements, releases = [] }: Pick<AttestationPolicy, 'measurements' | 'releases'>,
  nowMs: number,
): ImageComparison {
  const sets = measurements === 'any' ? [] : measurements
  if (sets.length + releases.length === 0) return { kind: 'not asked' }
  const pcrs = new Map([
    [0, pcr0],
    [1, pcr1],
    [2, pcr2],
    [8, pcr8 ?? new Uint8Array(PCR_BYTES)],
  ])
  const fitting = sets.filter((set) =>
    [...set].every(([index, value]) => equalBytes(pcrs.get(index) ?? value, value)),
  )
  const lacking = fitting.map((set) => [...set.keys()].filter((index) => !pcrs.has(index)))
  if (lacking.some(({ length }) => length === 0)) return { kind: 'same' }
  const match = matchRelease({ pcrs, timestampMs: nowMs }, releases)
  if (match.kind === 'accepted') return { kind: 'same' }
  const [registers] = lacking
  if (registers !== undefined) return { kind: 'open', registers }
  return match.kind === 'refused' ? { kind: 'refused', message: match.message } : { kind: 'other' }
}
