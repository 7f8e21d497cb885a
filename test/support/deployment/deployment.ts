import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { decodeBase64, decodeHex, encodeHex } from '#attestation/bytes.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { ConnectOptions } from '#client/index.ts'
import { awaitFreePort } from '#src/local/free-port.ts'
import { type LocalChain, startAnvil } from '#src/local/local-chain.ts'
import { serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'
import { createLogger } from '#src/observability/logger.ts'
import { type FaultyProxy, startFaultyProxy } from '../faulty-proxy.ts'
import { NATS, type NatsServer, startNatsServer } from '../nats-server.ts'
import { type PostgresServer, startPostgres } from '../postgres.ts'
import { createMeasuredNode } from '../register-node.ts'
import { FAST_TIMINGS, startTestAgent, type TestAgent } from '../run-agent.ts'
import {
  type ScriptedBackend,
  startScriptedBackend,
  textChunk,
  usageChunk,
  writeEvents,
} from '../scripted-backend.ts'
import { until } from '../until.ts'
import { Program, type ProgramPlan } from './program.ts'
import { type ReverseProxy, startReverseProxy } from './reverse-proxy.ts'
import { type ScriptedProvider, startScriptedProvider } from './scripted-provider.ts'

/** A gateway process. */
export type DeployedGateway = {
  readonly program: Program
  readonly port: number
  readonly origin: string
  readonly metricsUrl: string
  /** Sets how far its wall clock is ahead of the true time, milliseconds; also while it runs. */
  setClock(aheadMs: number): Promise<void>
}

/** An enclave process, with a simulated security module whose clock is right. */
export type DeployedEnclave = {
  readonly program: Program
  setClock(aheadMs: number): Promise<void>
}

/** The whole service as an operator has it: every part is a separate process, on loopback. */
export type Deployment = {
  /** Origin of the reverse proxy before the gateways. */
  readonly origin: string
  readonly proxy: ReverseProxy
  readonly key: string
  readonly gateways: readonly DeployedGateway[]
  readonly enclaves: readonly DeployedEnclave[]
  readonly postgres: PostgresServer
  readonly chain: LocalChain
  readonly provider: ScriptedProvider
  readonly backend: ScriptedBackend
  /** Connects the gateways; null for a gateway that is alone, or without a nats-server. */
  readonly nats: NatsServer | null
  /** Proxies between the gateways and the database, the chain and NATS. */
  readonly ways: {
    readonly database: FaultyProxy
    readonly chain: FaultyProxy
    readonly nats: FaultyProxy | null
  }
  /** Model of the node agents, which dial in through the reverse proxy. */
  readonly nodeModel: string
  /** Certificate of the root to which the enclaves' documents lead. */
  readonly rootFile: string
  /** Calls a method at the chain's own endpoint, even while the gateways are cut off from it. */
  callChain(method: string, parameters: readonly unknown[]): Promise<unknown>
  /** What a client that checks answers should expect. */
  readPolicy(): Promise<Pick<ConnectOptions, 'policy'>>
  waitUntilReady(timeoutMs?: number): Promise<void>
  stop(): Promise<void>
}

export type DeploymentOptions = {
  readonly gateways?: number
  readonly enclaves?: number
  /** Node agents, which dial in through the reverse proxy. Default: one. */
  readonly agents?: number
  /** Further variables for each gateway, beside the deployment's own. */
  readonly variables?: Readonly<Record<string, string>>
  /** Empty folder for the database's data. */
  readonly databaseFolder?: string
}

const KEY = 'deployment-key-0123456789'
const NODE_MODEL = 'model-a'
const READY_TIMEOUT_MS = 60_000
const MEASUREMENT = decodeHex('a1'.repeat(48))

/**
 * Limits of the enclaves for their provider, shorter than the defaults, so that tests reach them.
 */
export const ENCLAVE_LIMITS = {
  CONNECT_TIMEOUT_MS: '2000',
  FIRST_BYTE_TIMEOUT_MS: '5000',
  IDLE_TIMEOUT_MS: '3000',
  ANSWER_TIMEOUT_MS: '10000',
} as const

/** Starts the deployment, and waits until all gateways are ready and plain chat is served. */
export async function startDeployment(options: DeploymentOptions = {}): Promise<Deployment> {
  await using started = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-deployment-'))
  started.defer(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }))
  const { databaseFolder } = options
  const postgres = await startPostgres(
    { max_connections: '200', min_wal_size: '32MB', max_wal_size: '48MB' },
    databaseFolder === undefined ? {} : { dataFolder: databaseFolder },
  )
  started.defer(() => postgres.stop())
  const chain = await startAnvil({
    folder,
    port: 0,
    log: createLogger({ level: 'silent', destination: process.stderr }),
  })
  started.defer(() => chain.stop())
  const provider = await startScriptedProvider()
  started.defer(() => provider.stop())
  const nats = NATS.isMet && (options.gateways ?? 1) > 1 ? await startNatsServer() : null
  started.defer(async () => nats?.stop())
  const ways = {
    nats: nats === null ? null : await startFaultyProxy(Number(new URL(nats.url).port)),
    database: await startFaultyProxy(Number(new URL(postgres.url).port)),
    chain: await startFaultyProxy(Number(new URL(chain.rpcUrl).port)),
  }
  started.defer(async () => void (await Promise.all(Object.values(ways).map((way) => way?.stop()))))

  const enclaves: (DeployedEnclave & { readonly url: string })[] = []
  let rootFile = ''
  for (let number = 0; number < (options.enclaves ?? 1); number++) {
    const nsm = await serveSoftwareNsm({
      socketPath: join(folder, `nsm-${number}.sock`),
      rootFile: join(folder, 'root.pem'),
      measurements: { pcr0: MEASUREMENT, pcr1: MEASUREMENT, pcr2: MEASUREMENT },
    })
    started.defer(nsm.close)
    rootFile = nsm.rootFile
    const socket = join(folder, `enclave-${number}.sock`)
    const { program, setClock } = withClock(join(folder, `enclave-${number}.clock`), {
      file: 'enclave/main.ts',
      variables: {
        ENCLAVE_SOCKET: socket,
        NSM_SOCKET: nsm.socketPath,
        CHAIN_ID: String(chain.chainId),
        CONTRACT_ADDRESS: chain.contract,
        DEMO_PROVIDER_ORIGIN: provider.origin,
        ...ENCLAVE_LIMITS,
      },
    })
    program.start()
    started.defer(() => program.end('SIGKILL'))
    enclaves.push({ program, setClock, url: `unix:${socket}` })
  }

  const databaseUrl = new URL(postgres.url)
  databaseUrl.port = String(ways.database.port)
  const gateways: DeployedGateway[] = []
  for (let number = 0; number < (options.gateways ?? 1); number++) {
    const port = await awaitFreePort(0)
    const metricsPort = await awaitFreePort(0)
    const { program, setClock } = withClock(join(folder, `gateway-${number}.clock`), {
      file: 'src/main.ts',
      variables: {
        PORT: String(port),
        METRICS_PORT: String(metricsPort),
        DATA_DIR: join(folder, `gateway-${number}`),
        DATABASE_URL: databaseUrl.href,
        CHAIN_RPC_URL: ways.chain.url,
        CHAIN_ID: String(chain.chainId),
        RELAYER_PRIVATE_KEY: chain.relayerKey,
        CONTRACT_ADDRESS: chain.contract,
        CONFIRMATIONS: '1',
        ENCLAVE_URL: enclaves.map(({ url }) => url).join(','),
        DEV_API_KEY: KEY,
        LOG_LEVEL: 'info',
        ...(ways.nats === null ? {} : { NATS_URL: `nats://127.0.0.1:${ways.nats.port}` }),
        ...options.variables,
      },
    })
    program.start()
    started.defer(() => program.end('SIGTERM'))
    const origin = `http://127.0.0.1:${port}`
    const metricsUrl = `http://127.0.0.1:${metricsPort}/metrics`
    gateways.push({ program, setClock, port, origin, metricsUrl })
  }
  const waitUntilReady = async (timeoutMs = READY_TIMEOUT_MS) => {
    await Promise.all(
      gateways.map(({ origin, program }) =>
        until(`ready: ${origin}`, () => isReady(origin), timeoutMs).catch((error: Error) => {
          throw new Error(`${error.message}\n${program.output.slice(-4_000)}`)
        }),
      ),
    )
  }
  await waitUntilReady()
  const proxy = await startReverseProxy(gateways.map(({ port }) => port))
  started.defer(() => proxy.stop())

  const backend = await startScriptedBackend(echo, [NODE_MODEL])
  started.defer(() => backend.stop())
  // Without a bus, a gateway serves plain calls only with the agents that dialled in there.
  const dialled =
    nats === null
      ? gateways.map(({ origin }) => origin)
      : Array.from({ length: options.agents ?? 1 }, () => proxy.url)
  const agents = await startAgents(dialled, backend.url)
  started.defer(async () => void (await Promise.all(agents.map((agent) => agent.stop()))))
  const running = started.move()
  return {
    origin: proxy.url,
    proxy,
    key: KEY,
    gateways,
    enclaves,
    postgres,
    chain,
    provider,
    backend,
    ways,
    nats,
    nodeModel: NODE_MODEL,
    rootFile,
    waitUntilReady,
    callChain: (method, parameters) => callChain(chain.rpcUrl, method, parameters),
    readPolicy: () => readPolicy(proxy.url, rootFile),
    stop: () => running.disposeAsync(),
  }
}

function withClock(
  clockFile: string,
  plan: ProgramPlan,
): { readonly program: Program; setClock(aheadMs: number): Promise<void> } {
  const program = new Program({
    ...plan,
    nodeArguments: ['--import', join(import.meta.dirname, 'shifted-clock.ts')],
    variables: { ...plan.variables, CLOCK_FILE: clockFile },
  })
  return { program, setClock: (aheadMs) => writeFile(clockFile, String(aheadMs)) }
}

async function isReady(origin: string): Promise<boolean> {
  return fetch(`${origin}/readyz`, { signal: AbortSignal.timeout(2_000) }).then(
    ({ ok }) => ok,
    () => false,
  )
}

/** A backend that repeats its prompt in six parts. */
async function echo(
  response: Parameters<typeof writeEvents>[0],
  { messages }: Readonly<Record<string, unknown>>,
): Promise<void> {
  const [{ content }] = messages as readonly [{ readonly content: string }]
  const words = Array.from({ length: 6 }, (_, word) => textChunk(`${content} ${word} `))
  writeEvents(response, [...words, textChunk('', 'stop'), usageChunk(6), '[DONE]'])
  response.end()
}

/** Starts one agent at each of these gateways. */
async function startAgents(
  urls: readonly string[],
  backendUrl: string,
): Promise<readonly TestAgent[]> {
  const agents: TestAgent[] = []
  for (const url of urls) {
    const nodeId = await createMeasuredNode({ url, key: KEY }, [NODE_MODEL])
    const timings = { ...FAST_TIMINGS, pingMs: 1_000, drainMs: 0 }
    agents.push(
      startTestAgent({
        gatewayUrl: url,
        apiKey: KEY,
        nodeId,
        backendUrl,
        models: [NODE_MODEL],
        timings,
      }),
    )
  }
  await until('every agent is connected', () =>
    agents.every((agent) => agent.status().phase === 'connected'),
  )
  return agents
}

/** Gives the result of a JSON-RPC call. Throws with the chain's error. */
export async function callChain(
  url: string,
  method: string,
  params: readonly unknown[],
): Promise<unknown> {
  const reply = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
  })
  const { result, error } = (await reply.json()) as { result?: unknown; error?: unknown }
  if (error !== undefined) throw new Error(`${method}: ${JSON.stringify(error)}`)
  return result
}

/** The enclaves are alike, so one is enough. */
async function readPolicy(url: string, rootFile: string): Promise<Pick<ConnectOptions, 'policy'>> {
  const reply = await fetch(`${url}/v1/attestation`)
  const { attestation } = (await reply.json()) as { readonly attestation: string }
  const { userData } = decodeAttestationPayload(decodeBase64(attestation))
  const measurement = encodeHex(MEASUREMENT)
  return {
    policy: {
      enclaves: {
        measurements: [{ PCR0: measurement, PCR1: measurement, PCR2: measurement }],
        configurations: [encodeHex(userData ?? new Uint8Array())],
        roots: [await readFile(rootFile, 'utf8')],
      },
    },
  }
}
