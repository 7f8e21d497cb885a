import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { GatewayReady } from '#src/local/banner.ts'
import { DATABASE_FOLDER } from '#src/storage/database.ts'
import { childEnvironment } from './child-environment.ts'
import { copyEmbeddedDatabase } from './databases.ts'

/** The whole service, started as `npm start` does it, on free ports and in its own data folder. */
export type Affidavit = {
  readonly url: string
  /** Where metrics are; empty without METRICS_PORT. */
  readonly metricsUrl: string
  readonly apiKey: string
  readonly rpcUrl: string
  readonly contract: string
  readonly chainId: number
  /** The demo provider's origin. */
  readonly providerUrl: string
  /** The demo provider in a simulated TEE. */
  readonly attested: NonNullable<GatewayReady['attested']>
  /** The node in front of the demo provider. */
  readonly nodeId: string
  /** Certificate of the development root. */
  readonly rootFile: string
  /** File with what a client should expect of the enclave. */
  readonly policyFile: string
  readonly dataFolder: string
  /** The gateway's pid; its parts are its children (test/bench/processes.ts lists them). */
  readonly pid: number
  /** What it wrote so far. */
  output(): { readonly stdout: string; readonly stderr: string }
  /** SIGTERM; resolves with the exit code once it is gone. */
  stop(): Promise<number | null>
  /** kill -9; resolves when it is gone. */
  kill(): Promise<void>
  /** Removes the data folder, after `stop` or `kill`. */
  remove(): Promise<void>
}

export type AffidavitOptions = {
  readonly logLevel?: string
  /**
   * Default: a new one of `makeDataFolder`. `stop` does not remove a given folder, so that another
   * start can follow.
   */
  readonly dataFolder?: string
  /** Variables beside PORT, CHAIN_PORT, DATA_DIR and LOG_LEVEL, or in their place. */
  readonly variables?: Readonly<Record<string, string>>
}

const MAIN = join(import.meta.dirname, '../../src/main.ts')
const READY_TIMEOUT_MS = 90_000

/**
 * Starts the service and waits until it serves. Rejects with what it wrote when it exits instead.
 */
export async function startAffidavit(options: AffidavitOptions = {}): Promise<Affidavit> {
  const dataFolder = options.dataFolder ?? (await makeDataFolder())
  const { child, output } = launchAffidavit({ ...options, dataFolder })
  const ready = await waitUntilReady(child, output)
  const remove = () => rm(dataFolder, { recursive: true, force: true })
  const end = async (signal: NodeJS.Signals) => {
    if (child.exitCode !== null || child.signalCode !== null) return child.exitCode
    child.kill(signal)
    const [code] = await once(child, 'exit')
    return code as number | null
  }
  return {
    url: ready.url,
    metricsUrl: ready.metricsUrl ?? '',
    apiKey: ready.apiKey ?? '',
    rpcUrl: ready.chain.url ?? '',
    contract: ready.chain.contract,
    chainId: ready.chain.id,
    providerUrl: ready.demoOrigin ?? '',
    attested: ready.attested ?? { origin: '', policyFile: '', caFile: '' },
    nodeId: ready.nodeId ?? '',
    rootFile: ready.rootFile ?? '',
    policyFile: ready.policyFile ?? '',
    dataFolder,
    pid: child.pid ?? 0,
    output,
    stop: async () => {
      const code = await end('SIGTERM')
      if (options.dataFolder === undefined) await remove()
      return code
    },
    kill: async () => {
      await end('SIGKILL')
    },
    remove,
  }
}

/** Makes a data folder with a migrated database; making that would take most of a first start. */
export async function makeDataFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-data-'))
  await copyEmbeddedDatabase(join(folder, DATABASE_FOLDER))
  return folder
}

/** Starts the service without waiting for it: for starts that fail. */
export function launchAffidavit(options: AffidavitOptions & { readonly dataFolder: string }): {
  readonly child: ChildProcess
  readonly output: Affidavit['output']
} {
  const child = fork(MAIN, [], {
    env: {
      ...childEnvironment(),
      PORT: '0',
      CHAIN_PORT: '0',
      DATA_DIR: options.dataFolder,
      LOG_LEVEL: options.logLevel ?? 'info',
      ...options.variables,
    },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  const written = { stdout: '', stderr: '' }
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    written.stdout += text
  })
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    written.stderr += text
  })
  return { child, output: () => ({ ...written }) }
}

async function waitUntilReady(
  child: ChildProcess,
  output: Affidavit['output'],
): Promise<GatewayReady> {
  const timeout = AbortSignal.timeout(READY_TIMEOUT_MS)
  try {
    const [ready] = await Promise.race([
      once(child, 'message', { signal: timeout }),
      once(child, 'close').then(([code]) => {
        throw new Error(`the service exited with ${code}`)
      }),
    ])
    return ready as GatewayReady
  } catch (cause) {
    child.kill('SIGKILL')
    const { stdout, stderr } = output()
    throw new Error(`the service did not become ready:\n${stdout}\n${stderr}`, { cause })
  }
}
