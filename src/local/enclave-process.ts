import { join } from 'node:path'
import type { LogDomain } from '../../attestation/tree-head.ts'
import type { Logger } from '../observability/logger.ts'
import { StartFailure, settleAll } from '../runtime/starting.ts'
import type { Home } from '../storage/data-folder.ts'
import { DEMO_MODELS } from './demo/models.ts'
import { startDemoProvider } from './demo-provider.ts'
import { SoftwareNsmError } from './nsm/development-root.ts'
import { type NsmServer, serveSoftwareNsm } from './nsm/nsm-server.ts'
import { type SupervisedProcess, superviseProcess } from './supervised-process.ts'

type EnclaveOptions = LogDomain & {
  /** Where it listens; the kernel takes about 100 bytes. */
  readonly socketPath: string
  readonly demoOrigin: string
  /** Where the simulated security module keeps its root. */
  readonly nsmRootFile: string
  /** How long it waits for running calls when it is stopped. */
  readonly shutdownGraceMs: number
  /** What the operator set for it (enclave/config.ts). */
  readonly variables: Readonly<Record<string, string>>
}

/** Enclaves of this process's own, and the demo provider that they can reach. */
export type LocalEnclaves = {
  /** Where they listen. */
  readonly socketPaths: readonly string[]
  /** Certificate of the root that their attestation documents lead to. */
  readonly rootFile: string
  /** Where the demo provider listens. */
  readonly demoOrigin: string
  /** Which chat models it has: the provider table has a pattern. */
  readonly models: readonly string[]
  stop(): Promise<void>
}

/**
 * Starts `count` enclave processes with simulated security modules, and the demo provider, with the
 * variables that are meant for each. `domain` is that of the chain. All of them run, or none:
 * rejects with StartFailure.
 */
export async function startLocalEnclaves(
  {
    count,
    variables,
    demoVariables,
    home,
    domain,
    shutdownGraceMs,
  }: Pick<EnclaveOptions, 'variables' | 'shutdownGraceMs'> & {
    readonly count: number
    readonly demoVariables: Readonly<Record<string, string>>
    readonly home: Home
    readonly domain: Promise<LogDomain>
  },
  log: Logger,
): Promise<LocalEnclaves> {
  const [demo, { chainId, contract }] = await settleAll([
    startDemoProvider(demoVariables, log),
    domain,
  ])
  const socketPaths = Array.from({ length: count }, (_, index) =>
    join(home.privateFolder, index === 0 ? 'enclave.sock' : `enclave-${index + 1}.sock`),
  )
  const rootFolder = join(home.dataFolder, 'nsm')
  const demoOrigin = demo.ready.origin
  const nsmRootFile = join(rootFolder, 'root.pem')
  const options = { chainId, contract, demoOrigin, nsmRootFile, shutdownGraceMs, variables }
  try {
    const enclaves = await startTogether(
      socketPaths.map((socketPath) => startEnclaveProcess({ ...options, socketPath }, log)),
    )
    return {
      socketPaths,
      rootFile: join(rootFolder, 'root.crt.pem'),
      demoOrigin,
      models: DEMO_MODELS,
      stop: async () => {
        await Promise.all(enclaves.map((enclave) => enclave.stop()))
        await demo.stop()
      },
    }
  } catch (error) {
    await demo.stop()
    throw error
  }
}

/** All, or none: those that started are ended again when one did not. */
async function startTogether<Part extends { stop(): Promise<void> }>(
  starting: readonly Promise<Part>[],
): Promise<readonly Part[]> {
  try {
    return await settleAll<readonly Part[]>(starting)
  } catch (error) {
    const outcomes = await Promise.allSettled(starting)
    await Promise.all(
      outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value.stop() : null)),
    )
    throw error
  }
}

const MAIN = join(import.meta.dirname, '../../enclave/main.ts')
const START_TIMEOUT_MS = 60_000
const STOP_MARGIN_MS = 2_000

/**
 * Starts an enclave process, and for it a security module in software beside this gateway: in the
 * enclave it would be measured with it. The enclave gets the variables given here and no others: it
 * does not need the gateway's secrets. An enclave that died is started again, with a new key and a
 * new log. Rejects with StartFailure, which repeats what the enclave said about its configuration.
 */
async function startEnclaveProcess(
  options: EnclaveOptions,
  log: Logger,
): Promise<Pick<SupervisedProcess<unknown>, 'stop'>> {
  const nsm = await serveNsm(options)
  const environment = {
    ...options.variables,
    ENCLAVE_SOCKET: options.socketPath,
    NSM: 'software',
    NSM_SOCKET: nsm.socketPath,
    CHAIN_ID: String(options.chainId),
    CONTRACT_ADDRESS: options.contract,
    DEMO_PROVIDER_ORIGIN: options.demoOrigin,
    SHUTDOWN_GRACE_MS: String(options.shutdownGraceMs),
  }
  const plan = {
    name: 'enclave',
    file: MAIN,
    environmentOf: () => environment,
    parseReady,
    describeFault,
    startTimeoutMs: START_TIMEOUT_MS,
    stopTimeoutMs: options.shutdownGraceMs + STOP_MARGIN_MS,
  }
  try {
    const enclave = await superviseProcess(plan, log)
    return { stop: () => enclave.stop().finally(nsm.close) }
  } catch (error) {
    await nsm.close()
    throw error
  }
}

async function serveNsm({ socketPath, nsmRootFile }: EnclaveOptions): Promise<NsmServer> {
  // As short as the enclave's own: the kernel takes about 100 bytes.
  const nsmSocket = `${socketPath.replace(/\.sock$/, '')}.nsm`
  return serveSoftwareNsm({ socketPath: nsmSocket, rootFile: nsmRootFile }).catch(
    (error: unknown) => {
      throw error instanceof SoftwareNsmError
        ? new StartFailure(`enclave: ${error.message}`)
        : error
    },
  )
}

/** The enclave says in its ready line where it listens (enclave/main.ts). */
function parseReady(notice: unknown): { readonly socket: string } | null {
  const value = typeof notice === 'string' ? parseObject(notice) : null
  return value?.event === 'ready' && typeof value.socket === 'string'
    ? { socket: value.socket }
    : null
}

/** Its log is JSON lines; those of level error say what is wrong in `fault` or `message`. */
function describeFault(line: string): string | null {
  const value = parseObject(line)
  if (value === null) return line
  if (value.level !== 'error') return null
  return String(value.fault ?? value.message ?? value.event)
}

function parseObject(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? { ...value } : null
  } catch {
    return null
  }
}
