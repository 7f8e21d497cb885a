import { encodeHex } from '../../attestation/bytes.ts'
import type { AttestationFacts } from '../../attestation/nitro/facts.ts'
import { matchRelease, nameRelease } from '../../attestation/release/accepted-releases.ts'
import type { ReleaseEntry } from '../../attestation/release/release-list.ts'

/**
 * Gives why an enclave whose document has these facts may not be used now, in a sentence; null when its measurements are those of a
 * release that is accepted both now and at the document's own time: the first is the operator's rule, the second is what
 * readers of its records go by. `nowMs` is Unix milliseconds.
 */
export function findReleaseFault(
  { measurements: pcrs, timestampMs }: Pick<AttestationFacts, 'measurements' | 'timestampMs'>,
  entries: readonly ReleaseEntry[],
  nowMs: number,
): string | null {
  const atPresent = matchRelease({ pcrs, timestampMs: nowMs }, entries)
  if (atPresent.kind === 'unknown') {
    const image = pcrs.get(0)
    return `expected the measurements of an accepted release, got PCR0 ${image ? encodeHex(image) : 'none'}`
  }
  if (atPresent.kind === 'refused') return `expected an accepted release: ${atPresent.message}`
  const atDocument = matchRelease({ pcrs, timestampMs }, entries)
  return atDocument.kind === 'accepted'
    ? null
    : `expected a document made while ${nameRelease(atPresent.release)} is accepted, got one of ${new Date(timestampMs).toISOString()}`
}
