import { randomBytes } from 'node:crypto'
import { createCertificateChain, type ModuleIdentity } from './certificate-chain.ts'
import { createNsmClient } from './client.ts'
import { openDevelopmentRoot } from './development-root.ts'
import { measureSource, type SourceMeasurements } from './measured-source.ts'
import type { Nsm } from './nsm.ts'
import { createSecurityModule, type SecurityModule } from './security-module.ts'

export type SoftwareNsmOptions = {
  /** Where the development root is kept (openDevelopmentRoot); null keeps it in memory, gone with the process. */
  readonly rootFile: string | null
  /** Folder that holds attestation/, enclave/ and package-lock.json: the repository (measureSource). */
  readonly measuredRoot: string
  /** What PCR0 to 2 show instead of measurements of that folder. Default: null. */
  readonly measurements?: SourceMeasurements | null
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * Gives a security module in software, for development: documents of the same form as AWS's, of a new instance at
 * each call, under a development root that no default policy trusts. It protects nothing: the key, the clock and
 * the measurements are in the hands of whoever runs the process. Throws NsmError InvalidRoot or InvalidSource.
 */
export async function openSoftwareNsm(options: SoftwareNsmOptions): Promise<Nsm> {
  const module = await bootSecurityModule(options)
  return createNsmClient('software', {
    exchange: async (request) => module.processRequest(request),
    close: () => undefined,
  })
}

/** Gives the module itself, that speaks bytes: what openSoftwareNsm wraps, and a stand-in for the device in tests. */
export async function bootSecurityModule(options: SoftwareNsmOptions): Promise<SecurityModule> {
  const { rootFile, measuredRoot, measurements, now } = options
  const runtime = [`node ${process.version}`, `platform ${process.platform}-${process.arch}`]
  const [root, measured] = await Promise.all([
    openDevelopmentRoot(rootFile, now()),
    measurements ?? measureSource({ root: measuredRoot, runtime }),
  ])
  const identity = makeIdentity(now())
  return createSecurityModule({
    identity,
    measurements: [measured.pcr0, measured.pcr1, measured.pcr2],
    chainAt: createCertificateChain(root, identity),
    now,
  })
}

function makeIdentity(nowMs: number): ModuleIdentity {
  const startedAt = Buffer.alloc(8)
  startedAt.writeBigUInt64BE(BigInt(nowMs) << 16n)
  startedAt.set(randomBytes(2), 6)
  return { instanceId: `i-0${randomBytes(8).toString('hex')}`, enclaveId: startedAt }
}
