import type { Release, ReleaseMeasurements } from '#attestation/release/release.ts'
import { formatTime } from '#attestation/release/release-signatures.ts'
import { type DebianPackage, digestSha256 } from './debian-packages.ts'
import type { Pins } from './pins.ts'
import type { TrackedSources } from './tracked-files.ts'

export type ReleaseParts = {
  readonly version: string
  readonly sources: Pick<TrackedSources, 'commit' | 'committedAtMs' | 'uncommitted'>
  readonly measurements: ReleaseMeasurements
  readonly pins: Pick<Pins, 'digests'>
  readonly packages: readonly DebianPackage[]
  /** All other input by name: kernel, Node.js, settings, and the operator's files. */
  readonly files: Readonly<Record<string, Uint8Array>>
  /** Digest of the settings' boot configuration, 64 hex digits (digestSettings). */
  readonly configuration: string
}

/**
 * Describes a release as the payload that a release key signs: the image's measurements, the
 * SHA-256 of all input except the sources, and the digest of the expected boot configuration. The
 * payload's time is the commit's time, so that a rebuild produces the same payload. For uncommitted
 * sources, the version states that others cannot rebuild the image.
 */
export function describeRelease(parts: ReleaseParts): Release {
  const { version, sources, measurements, pins, packages, files, configuration } = parts
  const inputs = [
    ...Object.entries(pins.digests),
    ...packages.map(({ name, version, sha256 }) => [`debian:${name}=${version}`, sha256] as const),
    ...Object.entries(files).map(([name, bytes]) => [name, digestSha256(bytes)] as const),
  ]
  return {
    version: sources.uncommitted.length === 0 ? version : `${version}+uncommitted`,
    git_commit: sources.commit,
    created_at: formatTime(sources.committedAtMs),
    architecture: 'x86_64',
    measurements,
    inputs: Object.fromEntries(inputs.sort(([left], [right]) => (left < right ? -1 : 1))),
    configuration,
  }
}
