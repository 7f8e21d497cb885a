import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { createGatewayClient, type GatewayClient, GatewayError } from '../agent/gateway-client.ts'
import type { AgentReady } from '../agent/run-agent.ts'
import type { Logger } from '../observability/logger.ts'
import { placeFile } from '../runtime/place-file.ts'
import { StartFailure } from '../runtime/starting.ts'
import { reachableUrl } from './banner.ts'
import { readReady, type SupervisedProcess, superviseProcess } from './supervised-process.ts'

/** File of the data folder that keeps the id of the node which is made on first start. */
export const NODE_FILE = 'node-id'
/** Name of that node. */
const NODE_NAME = 'demonstration'

type AgentSettings = {
  /** Where the node's id is kept. */
  readonly dataFolder: string
  /** How long it waits for running requests when it is stopped. */
  readonly shutdownGraceMs: number
  readonly logLevel: string
  /** More of its variables (src/agent/config.ts). */
  readonly agentVariables: Readonly<Record<string, string>>
}

/** What it stands between. */
type AgentPlace = {
  /** Where the gateway is reached from this machine, without `/v1`. */
  readonly gatewayUrl: string
  /** Key of the account that the node belongs to. */
  readonly apiKey: string
  /** Where the backend listens. */
  readonly backendUrl: string
}

const MAIN = join(import.meta.dirname, '../agent/main.ts')
const START_TIMEOUT_MS = 60_000
const STOP_MARGIN_MS = 3_000
/**
 * A demonstration answers at once, however long it is measured: each of its models in less than a
 * second.
 */
const BENCHMARK_MS = 100
const BENCHMARK_CONCURRENCY = 2

/**
 * How long a start waits until the agent serves: a demonstration that is set to be slow is measured
 * longer than that.
 */
const SERVING_TIMEOUT_MS = 5_000
const SERVING_POLL_MS = 20

/**
 * Starts a node agent in front of the demo provider, so that plain chat is served from the first
 * minute, and waits a while until it does. `gatewayUrl` is where the gateway serves already.
 * Rejects with StartFailure.
 */
export async function startDemoAgent(
  config: AgentSettings,
  place: AgentPlace & {
    /** Whether any node serves. */
    readonly isServed: () => boolean
  },
  log: Logger,
): Promise<SupervisedProcess<AgentReady>> {
  const gatewayUrl = reachableUrl(place.gatewayUrl)
  // Its ordinary work is of no interest here; its faults are.
  const logLevel = config.logLevel === 'info' ? 'warn' : config.logLevel
  try {
    const agent = await startNodeAgent({ ...config, logLevel }, { ...place, gatewayUrl }, log)
    const deadline = performance.now() + SERVING_TIMEOUT_MS
    while (!place.isServed() && performance.now() < deadline) await sleep(SERVING_POLL_MS)
    return agent
  } catch (error) {
    if (error instanceof GatewayError) throw new StartFailure(`node agent: ${error.message}`)
    throw error
  }
}

/**
 * Starts a node agent in a process of its own, for a gateway that serves already. Its node is made
 * on first start, and again when the gateway no longer knows it. Resolves when the process runs: it
 * measures its models and connects by itself. An agent that died is started again. Rejects with
 * StartFailure, or GatewayError.
 */
export async function startNodeAgent(
  { dataFolder, shutdownGraceMs, logLevel, agentVariables }: AgentSettings,
  { gatewayUrl, apiKey, backendUrl }: AgentPlace,
  log: Logger,
): Promise<SupervisedProcess<AgentReady>> {
  const gateway = createGatewayClient({ url: gatewayUrl, apiKey })
  const nodeId = await openNode(gateway, dataFolder)
  const environment = {
    ...agentVariables,
    AFFIDAVIT_URL: gatewayUrl,
    AFFIDAVIT_API_KEY: apiKey,
    // It is this machine's own gateway, at whichever of its addresses.
    AFFIDAVIT_PLAIN_HTTP: 'true',
    NODE_ID: nodeId,
    BACKEND_URL: backendUrl,
    BENCHMARK_MS: String(BENCHMARK_MS),
    BENCHMARK_CONCURRENCY: String(BENCHMARK_CONCURRENCY),
    DRAIN_MS: String(shutdownGraceMs),
    LOG_LEVEL: logLevel,
  }
  return superviseProcess(
    {
      name: 'node agent',
      file: MAIN,
      environmentOf: () => environment,
      parseReady: readReady<AgentReady>,
      startTimeoutMs: START_TIMEOUT_MS,
      stopTimeoutMs: shutdownGraceMs + STOP_MARGIN_MS,
    },
    log,
  )
}

async function openNode(gateway: GatewayClient, dataFolder: string): Promise<string> {
  const file = join(dataFolder, NODE_FILE)
  const kept = (await readFile(file, 'utf8').catch(() => '')).trim()
  if (kept !== '' && (await gateway.findNode(kept)) !== null) return kept
  const nodeId = await gateway.createNode(NODE_NAME)
  await placeFile(file, `${nodeId}\n`, { draft: `${file}.next`, mode: 0o600 })
  return nodeId
}
