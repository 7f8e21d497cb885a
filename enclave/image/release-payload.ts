import type { Release, ReleaseMeasurements } from '../../attestation/release/release.ts'
import { formatTime } from '../../attestation/release/release-signatures.ts'
import type { DebianPackage } from './debian-packages.ts'
import { digestSha256, type Pins } from './pins.ts'
import type { TrackedSources } from './tracked-files.ts'

/** What a release payload is made of. */
export type ReleaseParts = {
  readonly version: string
  readonly sources: Pick<TrackedSources, 'commit' | 'committedAtMs' | 'uncommitted'>
  readonly measurements: ReleaseMeasurements
  readonly pins: Pick<Pins, 'digests'>
  /** The Debian packages that were opened. */
  readonly packages: readonly DebianPackage[]
  /** Other bytes that went in, by name: kernel, Node.js, settings, what the operator gave. */
  readonly files: Readonly<Record<string, Uint8Array>>
  /** Digest of the boot configuration that the settings come to, 64 hex digits (digestSettings). */
  readonly configuration: string
}

/**
 * Gives the payload that a release key signs: the image's measurements, the SHA-256 of all that the
 * builder took beside the sources, and the digest of the boot configuration that checkers of its
 * records expect. Its time is the commit's, so that a rebuild gives the same payload. An image of
 * uncommitted sources says so in its version: others cannot rebuild it.
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
