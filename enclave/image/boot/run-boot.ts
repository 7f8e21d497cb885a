import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { decodeHex } from '#attestation/bytes.ts'
import type { EifMeasurements } from '#attestation/eif/measure-eif.ts'
import type { BundleReport } from '#attestation/evidence/bundle-checks.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type JsonObject, memberOf } from '#attestation/json/value.ts'
import { parseRoots } from '#attestation/nitro/policy.ts'
import type { Release } from '#attestation/release/release.ts'
import { buildImage } from '../build-image.ts'
import type { BuiltImage } from '../report.ts'
import { type BootedEnclave, bootEnclave } from './boot-enclave.ts'
import { BootError } from './boot-error.ts'
import {
  type StartedChain,
  type StartedGateway,
  startChain,
  startGateway,
  startProvider,
} from './host-programs.ts'
import type { Accelerator } from './machine.ts'

export type BootStage = {
  readonly image: BuiltImage
  readonly chain: StartedChain
  readonly enclave: BootedEnclave
  readonly gateway: StartedGateway
  /** Time when the gateway was ready: milliseconds of performance.now(). */
  readonly gatewayAtMs: number
  stop(): Promise<void>
}

export type FirstCompletion = {
  readonly hash: string
  readonly bundle: JsonObject
  readonly report: BundleReport
  /** Time when the caller received the answer: milliseconds of performance.now(). */
  readonly answeredAtMs: number
}

/**
 * Builds a development image for the local chain and boots it. Starts a chain, a demonstration
 * provider and a gateway on this computer. `stop`, or a failed step, ends all of them. Rejects with
 * BuildError, BootError or EifError.
 */
export async function startStage(options: {
  /** Private folder for all files except fetched packages. The caller removes the folder. */
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
 * Makes one verified completion, and checks its evidence offline against the measurements of the
 * booted image file. Rejects with BootError. Its code is `not_verified` for missing or wrong
 * evidence.
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
  throw new BootError(
    'not_verified',
    `expected verified, got ${report.verdict}:\n${faults.join('\n')}`,
  )
}

/** A development image with the built-in providers and CAs, Debian's kernel and our init. */
const NOTHING_OF_THE_OPERATORS = {
  isDevelopment: true,
  limits: {},
  providersFile: null,
  caFile: null,
  kernel: null,
  initFile: null,
  nsmModuleFile: null,
  signing: null,
} as const

/**
 * Time limit for one answer from the gateway, milliseconds. The first completion takes a second in
 * emulation.
 */
const CALL_TIMEOUT_MS = 60_000

/** Time limit until a block contains the anchor and the evidence is available, milliseconds. */
const EVIDENCE_TIMEOUT_MS = 30_000

/** Returns the completion's hash. Rejects with BootError `call_failed`. */
export async function completeChat(gateway: StartedGateway, prompt: string): Promise<string> {
  const answer = await fetchJson(gateway, '/v1/verified/chat/completions', {
    model: 'demo/echo',
    messages: [{ role: 'user', content: prompt }],
  })
  const hash = memberOf(answer, 'hash')
  if (typeof hash !== 'string')
    throw new BootError('call_failed', 'expected a completion with its hash')
  return hash
}

/**
 * Waits until a block contains a completion's anchor, and returns the evidence. Rejects with
 * BootError `call_failed` or `timeout`.
 */
async function fetchEvidence(gateway: StartedGateway, hash: string): Promise<JsonObject> {
  const until = performance.now() + EVIDENCE_TIMEOUT_MS
  for (;;) {
    const bundle = await fetchJson(gateway, `/v1/verified/chat/completions/${hash}/evidence`)
    if (memberOf(bundle, 'block') !== null) return bundle
    if (performance.now() > until)
      throw new BootError(
        'timeout',
        `expected the anchor in a block within ${EVIDENCE_TIMEOUT_MS} ms`,
      )
    await sleep(EVIDENCE_POLL_MS)
  }
}

const EVIDENCE_POLL_MS = 100
const ANSWER_LENGTH_SHOWN = 500

async function fetchJson(
  { url, apiKey }: StartedGateway,
  path: string,
  body?: JsonObject,
): Promise<JsonObject> {
  const response = await fetch(url + path, {
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
    ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
  })
  const bytes = new Uint8Array(await response.arrayBuffer())
  const value = response.ok ? parseExactJson(bytes) : null
  if (value !== null && isJsonObject(value)) return value
  const said = Buffer.from(bytes).toString('utf8').slice(0, ANSWER_LENGTH_SHOWN)
  throw new BootError('call_failed', `${path}: expected an object, got ${response.status}: ${said}`)
}

/**
 * Returns what a relying party expects from an enclave with this development image: its
 * measurements, the boot configuration that its release names, and the root of its software NSM.
 * These facts do not come from the enclave or the gateway. Rejects with BootError `not_verified`
 * for a release without a boot configuration.
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
