import { type ChildProcess, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { z } from 'zod'
import { PROJECT_ROOT } from '../build-image.ts'
import { BootError } from './boot-error.ts'

/** A program of this project on the host. It ends when its IPC channel to this process closes. */
type HostProgram<Ready> = { readonly ready: Ready; stop(): Promise<void> }

export type StartedChain = z.output<typeof chainForm>
type NsmFacts = z.output<typeof nsmForm>
type ProviderFacts = z.output<typeof providerForm>
export type StartedGateway = z.output<typeof gatewayForm>

/** Time limit from a program's start to its ready message, milliseconds. */
const PROGRAM_TIMEOUT_MS = 90_000

/** Time between SIGTERM and SIGKILL, milliseconds. */
const STOP_TIMEOUT_MS = 15_000

/**
 * Starts src/local/run-chain.ts with its state in `folder`. Rejects with BootError
 * `program_failed`.
 */
export function startChain(folder: string): Promise<HostProgram<StartedChain>> {
  return startProgram(
    'the local chain',
    { file: 'src/local/run-chain.ts', words: [folder] },
    chainForm,
  )
}

/**
 * Starts the software security module (src/local/run-nsm.ts) on `socketPath`. It receives the
 * image's measurements, as a hardware module does from a hypervisor. Rejects with BootError
 * `program_failed`.
 */
export function startNsm(files: {
  readonly socketPath: string
  readonly rootFile: string
  readonly measurementsFile: string
}): Promise<HostProgram<NsmFacts>> {
  const words = [files.socketPath, files.rootFile, files.measurementsFile]
  return startProgram(
    'the software security module',
    { file: 'src/local/run-nsm.ts', words },
    nsmForm,
  )
}

/** Starts the demonstration provider on any free port. Rejects with BootError `program_failed`. */
export function startProvider(): Promise<HostProgram<ProviderFacts>> {
  return startProgram(
    'the demonstration provider',
    { file: 'src/local/demo/main.ts' },
    providerForm,
  )
}

/**
 * Starts a gateway for the enclave behind `socketPath`, as an operator would, on any free port.
 * Rejects with BootError `program_failed`. Its message contains the gateway's output.
 */
export function startGateway(options: {
  readonly socketPath: string
  readonly chain: StartedChain
  readonly dataFolder: string
}): Promise<HostProgram<StartedGateway>> {
  const { socketPath, chain, dataFolder } = options
  const environment = {
    PORT: '0',
    DATA_DIR: dataFolder,
    LOG_LEVEL: 'warn',
    ENCLAVE_URL: `unix:${socketPath}`,
    CHAIN_RPC_URL: chain.rpcUrl,
    CHAIN_ID: String(chain.chainId),
    CONTRACT_ADDRESS: chain.contract,
    RELAYER_PRIVATE_KEY: chain.relayerKey,
    CONFIRMATIONS: '1',
  }
  return startProgram('the gateway', { file: 'src/main.ts', environment }, gatewayForm)
}

const chainForm = z.object({
  kind: z.literal('ready'),
  rpcUrl: z.string(),
  chainId: z.number(),
  contract: z.string(),
  relayerKey: z.string(),
})

const nsmForm = z.object({ kind: z.literal('ready'), rootFile: z.string() })

const providerForm = z.object({ kind: z.literal('ready'), origin: z.url() })

const gatewayForm = z.object({ kind: z.literal('ready'), url: z.string(), apiKey: z.string() })

type Program = {
  /** Path of the program, relative to the project's root. */
  readonly file: string
  readonly words?: readonly string[]
  readonly environment?: Readonly<Record<string, string>>
}

const TAIL_LENGTH = 2_000

async function startProgram<Ready>(
  name: string,
  { file, words = [], environment = {} }: Program,
  form: z.ZodType<Ready>,
): Promise<HostProgram<Ready>> {
  const child = fork(join(PROJECT_ROOT, file), words, {
    env: environment,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    // A Ctrl-C must reach only this process, which then stops the programs that it started.
    detached: true,
  })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-TAIL_LENGTH)
    })
  try {
    const [notice] = await Promise.race([
      once(child, 'message', { signal: AbortSignal.timeout(PROGRAM_TIMEOUT_MS) }),
      once(child, 'close').then(() => Promise.reject(new Error('it ended'))),
    ])
    return { ready: form.parse(notice), stop: () => endProgram(child) }
  } catch (error) {
    await endProgram(child)
    const reason = error instanceof Error ? error.message : 'unknown'
    throw new BootError('program_failed', `${name} did not start (${reason}):\n${said.trim()}`)
  }
}

async function endProgram(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
  await exited
  clearTimeout(timer)
}

/** A program that ends when this process ends, even by a kill. */
export type GuardedProgram = {
  /** Process id of the program itself, not of its guard. */
  readonly pid: number
  /** Resolves when the program has ended and all its output was read. Never rejects. */
  readonly exited: Promise<void>
  /** Kills the program. Resolves when it has ended. */
  stop(): Promise<void>
}

/**
 * Starts a program of the operating system under src/local/guard.ts. `onOutput` receives the
 * program's standard output and standard error. Rejects with BootError `missing_tool` when the
 * program does not exist.
 */
export async function startGuarded(
  command: readonly [file: string, ...words: string[]],
  onOutput: (bytes: Uint8Array) => void,
): Promise<GuardedProgram> {
  const guard = spawn(process.execPath, [GUARD, ...command], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    // Only these variables are passed: qemu must not receive this process's secrets.
    env: { NODE_NO_WARNINGS: '1', PATH: SYSTEM_PATH },
    detached: true,
  })
  for (const stream of [guard.stdout, guard.stderr]) stream?.on('data', onOutput)
  const exited = new Promise<void>((resolve) => {
    guard.once('close', () => resolve())
    guard.once('error', () => resolve())
  })
  const pid = await Promise.race([readStartedPid(guard), exited.then(() => null)])
  if (pid === null)
    throw new BootError('missing_tool', `${command[0]} cannot be started; is it installed?`)
  return {
    pid,
    exited,
    stop: async () => {
      guard.kill('SIGTERM')
      await exited
    },
  }
}

const GUARD = join(PROJECT_ROOT, 'src/local/guard.ts')
const SYSTEM_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** Null if the program did not start (src/local/guard.ts). */
function readStartedPid(guard: ChildProcess): Promise<number | null> {
  return new Promise((resolve) => {
    guard.once('message', (report) => {
      const isStarted =
        typeof report === 'object' && 'pid' in report && typeof report.pid === 'number'
      resolve(isStarted ? Number(report.pid) : null)
    })
  })
}
