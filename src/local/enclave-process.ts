import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import { pathToFileURL } from 'node:url'
import type { LogDomain } from '#attestation/tree-head.ts'
import type { Logger } from '../observability/logger.ts'
import { StartFailure, settleAll } from '../runtime/starting.ts'
import type { Home } from '../storage/data-folder.ts'
import type { AttestedDemo } from './demo/config.ts'
import { DEMO_MODELS, TEE_MODELS } from './demo/models.ts'
import { startDemoProvider } from './demo-provider.ts'
import { SoftwareNsmError } from './nsm/development-root.ts'
import { type NsmServer, serveSoftwareNsm } from './nsm/nsm-server.ts'
import { parseLogLine, type SupervisedProcess, superviseProcess } from './supervised-process.ts'

export type LocalEnclaves = {
  readonly socketPaths: readonly string[]
  /** Root certificate of the enclaves' attestation documents. */
  readonly rootFile: string
  readonly demoOrigin: string
  readonly attested: AttestedDemo & { readonly kind: 'tinfoil' }
  /** The demo provider's chat models. The enclaves know only a pattern that their names match. */
  readonly models: readonly string[]
  stop(): Promise<void>
}

/**
 * Starts `count` enclaves, the demo provider, and a security module in software. The module runs in
 * this process, outside the measured code. An enclave gets only `variables`, and no secret of the
 * gateway. A restarted enclave has a new key and a new log. Rejects with StartFailure, which
 * repeats the enclave's message about its configuration.
 */
export async function startLocalEnclaves(
  options: {
    readonly count: number
    /** The operator's variables for enclaves (enclave/config.ts). */
    readonly variables: Readonly<Record<string, string>>
    readonly demoVariables: Readonly<Record<string, string>>
    /** Folder for the streams that enclaves refuse. Null: none is kept. */
    readonly refusedFolder: string | null
    readonly home: Home
    readonly domain: Promise<LogDomain>
    /** How long a stopping enclave waits for running calls. */
    readonly shutdownGraceMs: number
  },
  log: Logger,
): Promise<LocalEnclaves> {
  const { count, variables, home, shutdownGraceMs } = options
  const [demo, { chainId, contract }] = await settleAll([
    startDemoProvider({ ...options.demoVariables, DEMO_TEE_FOLDER: home.dataFolder }, log),
    options.domain,
  ])
  const parts: (() => Promise<void>)[] = [demo.stop]
  const enclaves: SupervisedProcess<unknown>[] = []
  const stop = async () => {
    await Promise.all(enclaves.map((enclave) => enclave.stop()))
    await Promise.all(parts.map((stopPart) => stopPart()))
  }
  try {
    const nsm = await serveNsm(home)
    parts.push(nsm.close)
    const { attested } = demo.ready
    if (attested === null) throw new TypeError('expected a demo provider in a simulated TEE')
    const shared = {
      ...variables,
      ...keepRefused(options.refusedFolder),
      PROVIDER_CA_FILE: await writeCas(home, variables, attested),
      NSM: 'software',
      NSM_SOCKET: nsm.socketPath,
      CHAIN_ID: String(chainId),
      CONTRACT_ADDRESS: contract,
      DEMO_PROVIDER_ORIGIN: demo.ready.origin,
      DEMO_TEE_ORIGIN: attested.origin,
      SHUTDOWN_GRACE_MS: String(shutdownGraceMs),
    }
    const socketPaths = Array.from({ length: count }, (_, index) =>
      join(home.privateFolder, index === 0 ? 'enclave.sock' : `enclave-${index + 1}.sock`),
    )
    const starting = socketPaths.map(async (socketPath) => {
      const plan = {
        name: 'enclave',
        file: MAIN,
        environmentOf: () => ({ ...shared, ENCLAVE_SOCKET: socketPath }),
        parseReady,
        describeFault,
        startTimeoutMs: START_TIMEOUT_MS,
        stopTimeoutMs: shutdownGraceMs + STOP_MARGIN_MS,
      }
      enclaves.push(await superviseProcess(plan, log))
    })
    await settleAll<readonly unknown[]>(starting)
    return {
      socketPaths,
      rootFile: nsm.rootFile,
      demoOrigin: demo.ready.origin,
      attested: { ...attested, kind: 'tinfoil' },
      models: [...DEMO_MODELS, ...TEE_MODELS],
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

const MAIN = join(import.meta.dirname, '../../enclave/main.ts')
const START_TIMEOUT_MS = 60_000
const STOP_MARGIN_MS = 2_000

function keepRefused(folder: string | null): Readonly<Record<string, string>> {
  if (folder === null) return {}
  const recorder = pathToFileURL(join(import.meta.dirname, 'keep-refused.ts'))
  recorder.searchParams.set('folder', folder)
  return { NODE_OPTIONS: `--import=${recorder.href}` }
}

/**
 * Writes a file of CAs that enclaves trust: the CAs in the operator's file (default: Node.js's
 * CAs), and the demonstration's CA. Returns the path of the new file. If the operator's file has no
 * certificates, returns the operator's path, and the enclave reports the fault.
 */
async function writeCas(
  { privateFolder }: Home,
  { PROVIDER_CA_FILE: given }: Readonly<Record<string, string>>,
  { caFile }: AttestedDemo,
): Promise<string> {
  const trusted =
    given === undefined
      ? rootCertificates.join('\n')
      : await readFile(given, 'utf8').catch(() => '')
  if (given !== undefined && !trusted.includes('-----BEGIN CERTIFICATE-----')) return given
  const file = join(privateFolder, 'provider-cas.pem')
  await writeFile(file, `${trusted}\n${await readFile(caFile, 'utf8')}`)
  return file
}

async function serveNsm({ privateFolder, dataFolder }: Home): Promise<NsmServer> {
  // The operating system limits the path of a socket to about 100 bytes.
  const socketPath = join(privateFolder, 'enclave.nsm')
  const rootFile = join(dataFolder, 'nsm', 'root.pem')
  return serveSoftwareNsm({ socketPath, rootFile }).catch((error: unknown) => {
    throw error instanceof SoftwareNsmError ? new StartFailure(`enclave: ${error.message}`) : error
  })
}

function parseReady(notice: unknown): { readonly socket: string } | null {
  const value = typeof notice === 'string' ? parseLogLine(notice) : null
  return value?.event === 'ready' && typeof value.socket === 'string'
    ? { socket: value.socket }
    : null
}

/** Null for lines that report no fault. */
function describeFault(line: string): string | null {
  const value = parseLogLine(line)
  if (value === null) return line
  if (value.level !== 'error') return null
  return String(value.fault ?? value.message ?? value.event)
}
