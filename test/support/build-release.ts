import { encodeHex } from '#attestation/bytes.ts'
import type { Release } from '#attestation/release/release.ts'
import { entryOf, type ReleaseEntry } from '#attestation/release/release-list.ts'
import { PCR_VALUES } from './nitro-builder/document-builder.ts'

const measured = (index: number) => encodeHex(PCR_VALUES.get(index) ?? new Uint8Array())

/** A release with the measurements of the document builder's documents. */
export function buildRelease(parts: Partial<Release> = {}): Release {
  return {
    version: '1.4.0',
    git_commit: '0123456789abcdef0123456789abcdef01234567',
    created_at: '2026-03-01T00:00:00Z',
    architecture: 'x86_64',
    measurements: { PCR0: measured(0), PCR1: measured(1), PCR2: measured(2) },
    inputs: { kernel: '22'.repeat(32) },
    ...parts,
  }
}

/** A release of other code. */
export function buildOtherRelease(parts: Partial<Release> = {}): Release {
  return buildRelease({
    version: '1.3.9',
    measurements: { PCR0: 'b0'.repeat(48), PCR1: 'b1'.repeat(48), PCR2: 'b2'.repeat(48) },
    ...parts,
  })
}

/** An entry of a release, accepted at any time unless said otherwise. */
export function buildEntry(parts: Partial<ReleaseEntry> = {}): ReleaseEntry {
  return { ...entryOf(buildRelease()), ...parts }
}
