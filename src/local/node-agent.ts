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

/** A file in the data folder. */
export const NODE_FILE = 'node-id'
const NODE_NAME = 'demonstration'

type AgentSettings = {
  readonly dataFolder: string
  /** How long a stopping agent waits for running requests. */
  readonly shutdownGraceMs: number
  readonly logLevel: string
  /** Additional variables for the agent (src/agent/config.ts). */
  readonly agentVariables: Readonly<Record<string, string>>
}

type AgentPlace = {
  /** On this machine, without `/v1`. */
  readonly gatewayUrl: string
  readonly apiKey: string
  readonly backendUrl: string
}

const MAIN = join(import.meta.dirname, '../agent/main.ts')
const START_TIMEOUT_MS = 60_000
const STOP_MARGIN_MS = 3_000

/** How long the start waits until the agent serves, also on a busy machine. Then it continues. */
const SERVING_TIMEOUT_MS = 30_000
const SERVING_POLL_MS = 20

/**
 * Starts a node agent in front of the demo provider, so that plain chat works after a start. The
 * gateway must already serve. Rejects with StartFailure.
 */
export async function startDemoAgent(
  config: AgentSettings,
  place: AgentPlace & {
    /** True if any node serves calls. */
    readonly isServed: () => boolean
  },
  log: Logger,
): Promise<SupervisedProcess<AgentReady>> {
  const gatewayUrl = reachableUrl(place.gatewayUrl)
  // The agent's `info` lines are not shown.
  const logLevel = config.logLevel === 'info' ? 'warn' : config.logLevel
  try {
    const agent = await startNodeAgent({ ...config, logLevel }, { ...place, gatewayUrl }, log)
    const deadline = performance.now() + SERVING_TIMEOUT_MS
    while (!place.isServed() && performance.now() < deadline) await sleep(SERVING_POLL_MS)
    if (!place.isServed()) log.warn({}, 'the demonstration node does not serve yet')
    return agent
  } catch (error) {
    if (error instanceof GatewayError) throw new StartFailure(`node agent: ${error.message}`)
    throw error
  }
}

/**
 * The gateway must already serve. Registers the node at the first start, and again if the gateway
 * no longer knows the node. Resolves when the process runs; the agent then measures its models and
 * connects. Rejects with StartFailure or GatewayError.
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
    // The agent and the gateway are on the same machine.
    AFFIDAVIT_PLAIN_HTTP: 'true',
    NODE_ID: nodeId,
    BACKEND_URL: backendUrl,
    // The demonstration answers immediately, so a short measurement per model is enough.
    BENCHMARK_MS: '100',
    BENCHMARK_CONCURRENCY: '2',
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
