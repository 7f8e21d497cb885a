import { readFile } from 'node:fs/promises'
import { decodeHex } from '../../../attestation/bytes.ts'
import type { EifMeasurements } from '../../../attestation/eif/registers.ts'
import type { BundlePolicy } from '../../../attestation/evidence/policy.ts'
import { parseRoots } from '../../../attestation/nitro/roots.ts'
import type { Release } from '../../../attestation/release/release.ts'
import { BootError } from './boot-error.ts'

/**
 * Gives what a relying party demands of an enclave that runs this development image: its measurements, the boot configuration
 * that its release names, and the root of its software NSM. Nothing is taken from the enclave or the gateway. Rejects with
 * BootError `not_verified` for a release without a boot configuration.
 */
export async function expectImage(image: {
  readonly measurements: Pick<EifMeasurements, 'pcr0' | 'pcr1' | 'pcr2'>
  readonly release: Pick<Release, 'configuration'>
  readonly rootFile: string
}): Promise<BundlePolicy> {
  const { measurements, release, rootFile } = image
  const { pcr0, pcr1, pcr2 } = measurements
  if (release.configuration === undefined)
    throw new BootError('not_verified', 'the release names no boot configuration')
  return {
    measurements: [new Map([pcr0, pcr1, pcr2].entries())],
    configurations: [decodeHex(release.configuration)],
    roots: parseRoots(await readFile(rootFile)),
  }
}
