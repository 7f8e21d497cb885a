import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pino from 'pino'
import { awaitFreePort } from '../../../src/local/free-port.ts'
import { startAnvil } from '../../../src/local/local-chain.ts'
import { serveSoftwareNsm } from '../../../src/local/nsm/nsm-server.ts'
import { startPostgres } from '../postgres.ts'

/** One process that can be killed at any moment and started again as it was. */
export type Part = {
  readonly name: 'gateway' | 'enclave' | 'chain' | 'database'
  /** kill -9; resolves when it is gone. */
  kill(): Promise<void>
  /** Starts it again, without waiting until it is ready. */
  restart(): Promise<void>
}

/** The whole service with each part a process of its own. */
export type KillableService = {
  readonly origin: string
  readonly key: string
  readonly rpcUrl: string
  readonly contract: string
  readonly parts: readonly Part[]
  /** Resolves when the gateway answers again. */
  waitUntilReady(): Promise<void>
  stop(): Promise<void>
}

const root = join(import.meta.dirname, '../../..')
const READY_TIMEOUT_MS = 60_000
const KEY = 'crash-test-key-0123456789'

/**
 * Starts real Postgres, a chain, the demo provider, an enclave and a gateway, on free ports of
 * loopback.
 */
export async function startKillableService(): Promise<KillableService> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-crash-'))
  const postgres = await startPostgres()
  const chain = await startAnvil({ folder, port: 0, log: pino({ level: 'silent' }) })
  const demo = await startDemo()
  const socket = join(folder, 'enclave.sock')
  const nsm = await serveSoftwareNsm({
    socketPath: join(folder, 'nsm.sock'),
    rootFile: join(folder, 'development-root.pem'),
  })
  const enclave = new Program('enclave/main.ts', {
    ENCLAVE_SOCKET: socket,
    NSM_SOCKET: nsm.socketPath,
    CHAIN_ID: String(chain.chainId),
    CONTRACT_ADDRESS: chain.contract,
    DEMO_PROVIDER_ORIGIN: demo.origin,
  })
  const port = await awaitFreePort(0)
  const origin = `http://127.0.0.1:${port}`
  const gateway = new Program('src/main.ts', {
    PORT: String(port),
    DATA_DIR: join(folder, 'gateway'),
    DATABASE_URL: postgres.url,
    CHAIN_RPC_URL: chain.rpcUrl,
    CHAIN_ID: String(chain.chainId),
    RELAYER_PRIVATE_KEY: chain.relayerKey,
    CONTRACT_ADDRESS: chain.contract,
    CONFIRMATIONS: '1',
    ENCLAVE_URL: `unix:${socket}`,
    DEV_API_KEY: KEY,
    LOG_LEVEL: 'silent',
  })
  enclave.start()
  gateway.start()
  const waitUntilReady = () => waitForGateway(origin, gateway)
  await waitUntilReady()
  return {
    origin,
    key: KEY,
    rpcUrl: chain.rpcUrl,
    contract: chain.contract,
    parts: [
      { name: 'gateway', kill: () => gateway.end('SIGKILL'), restart: async () => gateway.start() },
      { name: 'enclave', kill: () => enclave.end('SIGKILL'), restart: async () => enclave.start() },
      // Whoever starts the local chain also starts it again when it dies.
      { name: 'chain', kill: () => killChain(() => chain.pid), restart: async () => undefined },
      { name: 'database', kill: () => postgres.kill(), restart: () => postgres.restart() },
    ],
    waitUntilReady,
    stop: async () => {
      await gateway.end('SIGTERM')
      await enclave.end('SIGKILL')
      await nsm.close()
      demo.process.kill('SIGKILL')
      await chain.stop()
      await postgres.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** A program of this repository, run by this Node.js, that ends with this process. */
class Program {
  private child: ChildProcess | null = null
  private readonly file: string
  private readonly variables: Readonly<Record<string, string>>

  constructor(file: string, variables: Readonly<Record<string, string>>) {
    this.file = file
    this.variables = variables
  }

  get isRunning(): boolean {
    return this.child !== null && this.child.exitCode === null && this.child.signalCode === null
  }

  /** Starts it; does nothing while it runs. */
  start(): void {
    if (this.isRunning) return
    const env = { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '', ...this.variables }
    this.child = fork(join(root, this.file), { env, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    const { child } = this
    if (child === null || !this.isRunning) return
    const exited = once(child, 'exit')
    child.kill(signal)
    await exited
  }
}

/**
 * A gateway that exits because its database or enclave is not back yet is started again, as a
 * supervisor would.
 */
async function waitForGateway(origin: string, gateway: Program): Promise<void> {
  const deadline = performance.now() + READY_TIMEOUT_MS
  while (performance.now() < deadline) {
    gateway.start()
    const answers = await fetch(origin, { signal: AbortSignal.timeout(1_000) }).then(
      (response) => response.ok,
      () => false,
    )
    if (answers) return
    await sleep(100)
  }
  throw new Error(`the gateway did not become ready within ${READY_TIMEOUT_MS} ms`)
}

async function killChain(pidOf: () => number | null): Promise<void> {
  const pid = pidOf()
  if (pid !== null) process.kill(pid, 'SIGKILL')
  while (pid !== null && pidOf() === pid) await sleep(5)
}

async function startDemo(): Promise<{ process: ChildProcess; origin: string }> {
  const child = fork(join(root, 'src/local/demo/main.ts'), {
    env: { PATH: process.env.PATH ?? '', DEMO_PORT: '0' },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  const [ready] = (await once(child, 'message')) as [{ origin: string }]
  return { process: child, origin: ready.origin }
}
