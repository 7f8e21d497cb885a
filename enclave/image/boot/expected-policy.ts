import { readFile } from 'node:fs/promises'
import type { EifMeasurements } from '../../../attestation/eif/registers.ts'
import type { BundlePolicy } from '../../../attestation/evidence/policy.ts'
import { parseRoots } from '../../../attestation/nitro/roots.ts'
import type { Release } from '../../../attestation/release/release.ts'
import { bootConfiguration, digestBootConfiguration } from '../../boot-configuration.ts'
import { readConfig } from '../../config.ts'
import { DEMO_PROVIDER_ORIGIN } from '../settings-files.ts'
import { BootError } from './boot-error.ts'
import type { ChainFacts } from './gateway-side.ts'

/**
 * Gives what a relying party demands of an enclave that runs this development image: its measurements, its boot
 * configuration, and the root of its software NSM. All of it is known from the image and from what it was built for; nothing
 * is taken from the enclave or the gateway. Rejects with BootError `not_verified` for a release without a CA set.
 */
export async function expectImage(image: {
  readonly measurements: Pick<EifMeasurements, 'pcr0' | 'pcr1' | 'pcr2'>
  readonly release: Pick<Release, 'inputs'>
  readonly chain: Pick<ChainFacts, 'chainId' | 'contract'>
  readonly rootFile: string
}): Promise<BundlePolicy> {
  const { measurements, release, chain, rootFile } = image
  const { providers } = readConfig({
    ENCLAVE_SOCKET: '/',
    CHAIN_ID: String(chain.chainId),
    CONTRACT_ADDRESS: chain.contract,
    DEMO_PROVIDER_ORIGIN,
  })
  const caSha256 = release.inputs[CA_INPUT]
  if (caSha256 === undefined) throw new BootError('not_verified', `the image names no input ${CA_INPUT}`)
  const configuration = bootConfiguration({ ...chain, providers, cas: { pem: '', sha256: caSha256 } })
  return {
    measurements: [
      new Map([
        [0, measurements.pcr0],
        [1, measurements.pcr1],
        [2, measurements.pcr2],
      ]),
    ],
    configurations: [digestBootConfiguration(configuration)],
    roots: parseRoots(await readFile(rootFile)),
  }
}

/** The CA set among the inputs of a release (build-image.ts). */
const CA_INPUT = 'settings:/etc/affidavit/provider-cas.pem'
