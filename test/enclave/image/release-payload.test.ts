import { describe, expect, it } from 'vitest'
import { parseRelease } from '#attestation/release/release.ts'
import { describeRelease, type ReleaseParts } from '#enclave/image/release-payload.ts'

const PARTS: ReleaseParts = {
  version: '1.2.3',
  sources: { commit: 'ab'.repeat(20), committedAtMs: 1_700_000_000_000, uncommitted: [] },
  measurements: { PCR0: '1'.repeat(96), PCR1: '2'.repeat(96), PCR2: '3'.repeat(96) },
  pins: { digests: { 'package-lock.json': 'cd'.repeat(32) } },
  packages: [
    {
      name: 'socat',
      version: '1:2.0+b1',
      architecture: 'amd64',
      sha256: 'ef'.repeat(32),
      size: 1,
      into: ['application'],
      why: 'x',
      take: ['x'],
    },
  ],
  files: { kernel: new TextEncoder().encode('abc') },
  configuration: '12'.repeat(32),
}

describe('describeRelease', () => {
  it('describeRelease gives a payload that a release is signed over, with the time of its commit', () => {
    const release = describeRelease(PARTS)
    expect(parseRelease(JSON.parse(JSON.stringify(release)))).toEqual(release)
    expect(release).toEqual({
      version: '1.2.3',
      git_commit: PARTS.sources.commit,
      created_at: '2023-11-14T22:13:20Z',
      architecture: 'x86_64',
      measurements: PARTS.measurements,
      inputs: {
        'debian:socat=1:2.0+b1': 'ef'.repeat(32),
        kernel: 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
        'package-lock.json': 'cd'.repeat(32),
      },
      configuration: PARTS.configuration,
    })
  })
})
