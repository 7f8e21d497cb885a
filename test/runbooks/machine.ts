import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { computeAddress } from 'ethers'
import { decodeHex } from '#attestation/bytes.ts'
import { awaitFreePort } from '#src/local/free-port.ts'
import { type LocalChain, startAnvil } from '#src/local/local-chain.ts'
import { serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'
import { createLogger } from '#src/observability/logger.ts'
import { callChain } from '../support/deployment/deployment.ts'
import { Program } from '../support/deployment/program.ts'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../support/deployment/scripted-provider.ts'
import { type PostgresPlace, type PostgresServer, startPostgres } from '../support/postgres.ts'
import { type CliRun, runCli } from '../support/run-cli.ts'
import { createTestDatabase } from '../support/test-database.ts'
import { until } from '../support/until.ts'
import type { WalkOptions } from './walk.ts'

/** A gateway as systemd runs it: its settings are the file that the runbooks edit. */
export type Unit = {
  readonly program: Program
  readonly origin: string
  readonly metricsUrl: string
  /** Folder of its gateway.env, /etc/affidavit of its machine. */
  readonly etc: string
  readonly controlSocket: string
  /** Starts it with what its file says now. */
  start(): Promise<void>
}

/** The machine of an operator: every part of the service, and what a runbook's shell needs. */
export type Machine = {
  readonly folder: string
  readonly etc: string
  /** Of the gateways; the first is the one on this machine, `affidavit-gateway`. */
  readonly gateways: readonly [Unit, ...Unit[]]
  readonly enclaves: ReadonlyMap<string, Program>
  /** A database of the run's server, which no test ends, or of one of its own. */
  readonly postgres: MachineDatabase
  readonly chain: MachineChain
  readonly provider: ScriptedProvider
  readonly rootFile: string
  /** An API key of every gateway. */
  readonly key: string
  /** What walks a page here: `systemctl`, and where the paths of a page are. */
  readonly walking: Required<Pick<WalkOptions, 'commands' | 'places' | 'variables'>>
  callChain(method: string, parameters: readonly unknown[]): Promise<unknown>
  /** A verified completion by a key at a gateway; rejects unless it is answered. */
  complete(options?: {
    readonly content?: string
    readonly key?: string
    readonly at?: Pick<Unit, 'origin'>
  }): Promise<{ readonly hash: string; readonly notary: string; readonly text: string }>
  /** A record as its owner reads it. */
  readRecord(hash: string): Promise<Readonly<Record<string, unknown>>>
  /** `affidavit audit` of the last gateway, with the key and the chain. */
  audit(...words: readonly string[]): Promise<CliRun>
  waitUntilReady(timeoutMs?: number): Promise<void>
  stop(): Promise<void>
}

/** Where the gateways' database is. */
type MachineDatabase = Pick<PostgresServer, 'url' | 'createDatabase' | 'kill'>

/** The chain that anchors go to. */
type MachineChain = Pick<LocalChain, 'rpcUrl' | 'chainId' | 'contract' | 'relayerKey'>

export type MachineOptions = {
  /** A chain that runs already. Default: a local one of its own. */
  readonly chain?: MachineChain
  readonly gateways?: number
  /** CIDs of the enclaves that run, each with two hex digits that its measurements are made of. */
  readonly enclaves?: Readonly<Record<string, string>>
  /** Lines of each gateway's settings beside those that the machine sets. */
  readonly settings?: (folder: string) => Readonly<Record<string, string>>
  /** The checkout that the gateways are started from, a link that may change. Default: this one. */
  readonly checkout?: string
  /** A Postgres server of its own. Default: a database of the run's. */
  readonly database?: PostgresPlace
  /** Writes files into the folder before anything starts. */
  readonly prepare?: (folder: string) => Promise<void>
}

const ROOT = join(import.meta.dirname, '../..')
const KEY = 'runbook-key-0123456789'
const READY_TIMEOUT_MS = 60_000

/** Starts it, and waits until all gateways are ready. */
export async function startMachine(options: MachineOptions = {}): Promise<Machine> {
  await using started = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-machine-'))
  started.defer(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }))
  for (const name of ['etc', 'run']) await mkdir(join(folder, name))
  await options.prepare?.(folder)
  const postgres = await openPostgres(options.database, started)
  const chain = options.chain ?? (await startOwnChain(folder, started))
  const provider = await startScriptedProvider()
  started.defer(() => provider.stop())

  const units = new Map<string, Startable>()
  const enclaves = new Map<string, Program>()
  let rootFile = ''
  for (const [cid, digits] of Object.entries(options.enclaves ?? { 16: 'a1' })) {
    const register = decodeHex(digits.repeat(48))
    const nsm = await serveSoftwareNsm({
      socketPath: join(folder, `nsm-${cid}.sock`),
      rootFile: join(folder, 'root.pem'),
      measurements: { pcr0: register, pcr1: register, pcr2: register },
    })
    started.defer(nsm.close)
    rootFile = nsm.rootFile
    const program = new Program({
      file: join(ROOT, 'enclave/main.ts'),
      variables: {
        ENCLAVE_SOCKET: join(folder, 'run', `enclave-${cid}.sock`),
        NSM_SOCKET: nsm.socketPath,
        CHAIN_ID: String(chain.chainId),
        CONTRACT_ADDRESS: chain.contract,
        DEMO_PROVIDER_ORIGIN: provider.origin,
      },
    })
    program.start()
    started.defer(() => program.end('SIGKILL'))
    enclaves.set(cid, program)
    units.set(`affidavit-enclave@${cid}`, { program, start: async () => program.start() })
  }

  const settings = {
    DATABASE_URL: postgres.url,
    CHAIN_RPC_URL: chain.rpcUrl,
    CHAIN_ID: String(chain.chainId),
    CONTRACT_ADDRESS: chain.contract,
    RELAYER_PRIVATE_KEY: chain.relayerKey,
    CONFIRMATIONS: '1',
    ENCLAVE_URL: [...enclaves.keys()]
      .map((cid) => `unix:${join(folder, 'run', `enclave-${cid}.sock`)}`)
      .join(','),
    DEV_API_KEY: KEY,
    LOG_LEVEL: 'info',
    ...options.settings?.(folder),
  }
  const gateways: Unit[] = []
  for (let number = 0; number < (options.gateways ?? 1); number++) {
    const unit = await startGateway(folder, number, {
      settings,
      checkout: options.checkout ?? ROOT,
    })
    started.defer(() => unit.program.end('SIGTERM'))
    gateways.push(unit)
    units.set(number === 0 ? 'affidavit-gateway' : `affidavit-gateway-${number + 1}`, unit)
  }
  const [first] = gateways
  if (first === undefined) throw new Error('expected a gateway')
  const waitUntilReady = async (timeoutMs = READY_TIMEOUT_MS) => {
    for (const { origin, program } of gateways.filter((one) => one.program.isRunning))
      await until(`ready: ${origin}`, () => isReady(origin), timeoutMs).catch((error: Error) => {
        throw new Error(`${error.message}\n${program.output.slice(-4_000)}`)
      })
  }
  await waitUntilReady()
  const expectations = `--any-measurement --root ${rootFile}\n`
  await writeFile(join(first.etc, 'audit.options'), expectations)
  const running = started.move()
  return {
    folder,
    etc: first.etc,
    gateways: [first, ...gateways.slice(1)],
    enclaves,
    postgres,
    chain,
    provider,
    rootFile,
    waitUntilReady,
    key: KEY,
    walking: {
      variables: { GATEWAY: first.origin },
      commands: {
        systemctl: (words) => control(words, units),
        journalctl: () => ({ output: first.program.output }),
      },
      places: {
        'http://127.0.0.1:3000': first.origin,
        '/run/affidavit-gateway': dirname(first.controlSocket),
        '/run/affidavit': join(folder, 'run'),
        '/etc/affidavit': first.etc,
      },
    },
    callChain: (method, parameters) => callChain(chain.rpcUrl, method, parameters),
    complete: async ({ content = crypto.randomUUID(), key = KEY, at = first } = {}) => {
      const reply = await fetch(`${at.origin}/v1/verified/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
        body: JSON.stringify({
          model: 'demo/echo',
          messages: [{ role: 'user', content }],
        }),
      })
      const text = await reply.text()
      if (reply.status !== 200) throw new Error(`${reply.status}: ${text}`)
      const { hash, public_key: publicKey } = JSON.parse(text) as Record<string, string>
      return { hash: hash ?? '', notary: computeAddress(publicKey ?? '').toLowerCase(), text }
    },
    readRecord: async (hash) => {
      const reply = await fetch(`${first.origin}/v1/verified/chat/completions/${hash}`, {
        headers: { authorization: `Bearer ${KEY}` },
      })
      if (reply.status !== 200) throw new Error(`${reply.status}: ${await reply.text()}`)
      return (await reply.json()) as Readonly<Record<string, unknown>>
    },
    audit: (...words) =>
      runCli(
        [
          'audit',
          gateways.at(-1)?.origin ?? '',
          '--key',
          KEY,
          '--rpc',
          chain.rpcUrl,
          '--root',
          rootFile,
          ...words,
        ],
        {},
      ),
    stop: () => running.disposeAsync(),
  }
}

async function openPostgres(
  place: PostgresPlace | undefined,
  started: AsyncDisposableStack,
): Promise<MachineDatabase> {
  const createDatabase = () => createTestDatabase({ empty: true })
  const kill = () => Promise.reject(new Error('the server of the run is not to be ended'))
  if (place === undefined) return { url: await createDatabase(), createDatabase, kill }
  const server = await startPostgres({ max_connections: '200' }, place)
  started.defer(() => server.stop())
  return server
}

async function startOwnChain(folder: string, started: AsyncDisposableStack): Promise<MachineChain> {
  const chain = await startAnvil({
    folder,
    port: 0,
    log: createLogger({ level: 'silent', destination: process.stderr }),
  })
  started.defer(() => chain.stop())
  return chain
}

async function startGateway(
  folder: string,
  number: number,
  {
    settings,
    checkout,
  }: { readonly settings: Readonly<Record<string, string>>; readonly checkout: string },
): Promise<Unit> {
  const etc = join(folder, number === 0 ? 'etc' : `etc-${number + 1}`)
  await mkdir(etc, { recursive: true })
  const text = Object.entries(settings).map(([name, value]) => `${name}=${value}\n`)
  await writeFile(join(etc, 'gateway.env'), text.join(''), { mode: 0o600 })
  const port = await awaitFreePort(0)
  const metricsPort = await awaitFreePort(0)
  const run = join(folder, `control-${number}`)
  await mkdir(run)
  const controlSocket = join(run, 'control.sock')
  const program = new Program({
    file: 'src/main.ts',
    variables: {
      PORT: String(port),
      METRICS_PORT: String(metricsPort),
      DATA_DIR: join(folder, `data-${number}`),
      CONTROL_SOCKET: controlSocket,
    },
  })
  const start = async () =>
    program.start({
      file: join(checkout, 'src/main.ts'),
      variables: await readEnvironmentFile(etc),
    })
  await start()
  return {
    program,
    etc,
    controlSocket,
    start,
    origin: `http://127.0.0.1:${port}`,
    metricsUrl: `http://127.0.0.1:${metricsPort}/metrics`,
  }
}

/** As systemd reads an EnvironmentFile, as far as the runbooks write one. */
async function readEnvironmentFile(etc: string): Promise<Readonly<Record<string, string>>> {
  const text = await readFile(join(etc, 'gateway.env'), 'utf8')
  return Object.fromEntries(
    text
      .split('\n')
      .flatMap((line) => (/^[A-Z]/.test(line) ? [/^([^=]+)=(.*)$/.exec(line) ?? []] : []))
      .map(([, name = '', value = '']) => [name, value]),
  )
}

type Startable = { start(): Promise<void>; readonly program: Program }

/** What `systemctl` does. Resolves when the units are started, or gone. */
async function control(
  words: readonly string[],
  units: ReadonlyMap<string, Startable>,
): Promise<undefined> {
  const [verb = '', ...names] = words.filter((word) => word !== '--now')
  for (const name of names) {
    const unit = units.get(name)
    // The bridge is the socket itself here.
    if (unit === undefined && name.startsWith('affidavit-enclave-bridge@')) continue
    if (unit === undefined) throw new Error(`Unit ${name}.service not found.`)
    await act(verb, unit)
  }
}

async function act(verb: string, { program, start }: Startable): Promise<void> {
  if (verb === 'reload') {
    process.kill(program.pid ?? Number.NaN, 'SIGHUP')
    return
  }
  if (verb === 'stop' || verb === 'disable' || verb === 'restart') await program.end('SIGTERM')
  if (verb === 'start' || verb === 'enable' || verb === 'restart') await start()
  if (!['stop', 'disable', 'restart', 'start', 'enable'].includes(verb))
    throw new Error(`Unknown command verb ${verb}.`)
}

async function isReady(origin: string): Promise<boolean> {
  return fetch(`${origin}/readyz`, { signal: AbortSignal.timeout(2_000) }).then(
    ({ ok }) => ok,
    () => false,
  )
}
