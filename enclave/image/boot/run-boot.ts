import { join } from 'node:path'
import type { BundleReport } from '../../../attestation/evidence/bundle-report.ts'
import { verifyBundle } from '../../../attestation/evidence/verify-bundle.ts'
import type { JsonObject } from '../../../attestation/json/value.ts'
import { buildImage } from '../build-image.ts'
import type { BuiltImage } from '../built-image.ts'
import { type BootedEnclave, bootEnclave } from './boot-enclave.ts'
import { BootError } from './boot-error.ts'
import { expectImage } from './expected-policy.ts'
import {
  type ChainFacts,
  type GatewayFacts,
  startChain,
  startGateway,
  startProvider,
} from './gateway-side.ts'
import type { Accelerator } from './machine-arguments.ts'
import { completeChat, fetchEvidence } from './verified-call.ts'

/** Everything around a booted image, running. */
export type BootStage = {
  readonly image: BuiltImage
  readonly chain: ChainFacts
  readonly enclave: BootedEnclave
  readonly gateway: GatewayFacts
  /** When the gateway served: milliseconds of performance.now(). */
  readonly gatewayAtMs: number
  stop(): Promise<void>
}

/** A verified completion of a booted image. */
export type FirstCompletion = {
  readonly hash: string
  readonly bundle: JsonObject
  readonly report: BundleReport
  /** When the caller had its answer: milliseconds of performance.now(). */
  readonly answeredAtMs: number
}

/**
 * Builds a development image for the local chain, boots it, and starts chain, demonstration provider and a gateway on this
 * machine. `stop` ends all of it, and so does a failure. Rejects with BuildError, BootError or EifError.
 */
export async function startStage(options: {
  /** For all that is written, but the fetched packages; this user's alone. The caller removes it. */
  readonly folder: string
  readonly accelerator: Accelerator | null
  readonly packagesFolder: string | null
}): Promise<BootStage> {
  await using started = new AsyncDisposableStack()
  const { folder } = options
  const chain = await startChain(join(folder, 'chain'))
  started.defer(() => chain.stop())
  const provider = await startProvider()
  started.defer(() => provider.stop())
  const image = await buildImage({
    ...NOTHING_OF_THE_OPERATORS,
    output: join(folder, 'image'),
    chainId: chain.ready.chainId,
    contract: chain.ready.contract,
    packagesFolder: options.packagesFolder,
  })
  const enclave = await bootEnclave({
    eifPath: image.eifPath,
    accelerator: options.accelerator,
    providerPort: Number(new URL(provider.ready.origin).port),
    folder: join(folder, 'boot'),
  })
  started.defer(() => enclave.stop())
  const { socketPath } = enclave
  const dataFolder = join(folder, 'data')
  const gateway = await startGateway({ socketPath, chain: chain.ready, dataFolder })
  started.defer(() => gateway.stop())
  const gatewayAtMs = performance.now()
  const running = started.move()
  const stop = () => running.disposeAsync()
  return { image, chain: chain.ready, enclave, gateway: gateway.ready, gatewayAtMs, stop }
}

/**
 * Makes one verified completion and checks its evidence offline, against the measurements of the image file that was booted.
 * Rejects with BootError, `not_verified` when anything is missing or wrong.
 */
export async function verifyFirstCompletion(stage: BootStage): Promise<FirstCompletion> {
  const { image, enclave, gateway } = stage
  const hash = await completeChat(gateway, 'Who are you?')
  const answeredAtMs = performance.now()
  const bundle = await fetchEvidence(gateway, hash)
  const { measurements, rootFile } = enclave
  const policy = await expectImage({ measurements, release: image.release, rootFile })
  const report = await verifyBundle(bundle, policy)
  if (report.verdict === 'verified') return { hash, bundle, report, answeredAtMs }
  const open = report.checks.filter(({ outcome }) => outcome !== 'passed')
  const faults = open.map(({ name, outcome, detail }) => `${name} ${outcome}: ${detail}`)
  throw new BootError('not_verified', `expected verified, got ${report.verdict}:\n${faults.join('\n')}`)
}

/** A development image with the built-in providers and CAs, Debian's kernel and our init. */
const NOTHING_OF_THE_OPERATORS = {
  isDevelopment: true,
  providersFile: null,
  caFile: null,
  kernel: null,
  initFile: null,
  nsmModuleFile: null,
  signing: null,
} as const
