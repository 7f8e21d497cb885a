import { setTimeout as sleep } from 'node:timers/promises'
import { GatewayError } from '../agent/gateway-client.ts'
import type { AgentReady } from '../agent/run-agent.ts'
import type { GatewayConfig } from '../config.ts'
import { startNodeAgent } from '../local/node-agent.ts'
import { StartFailure, type SupervisedProcess } from '../local/supervised-process.ts'
import type { Logger } from '../observability/logger.ts'
import { reachableUrl } from './reachable-url.ts'

/** The agent that is started here. */
export type DemoAgent = SupervisedProcess<AgentReady>

/** How long a start waits until the agent serves: a demonstration that was told to be slow is measured longer than that. */
export const SERVING_TIMEOUT_MS = 5_000
const SERVING_POLL_MS = 20

/**
 * Starts a node agent in front of the demo provider, so that plain chat is served from the first minute, and waits a
 * while until it does; null when there is no demo provider, or no key of an account that its node could belong to.
 * Rejects with StartFailure.
 */
export async function startDemoAgent(
  { dataFolder, shutdownGraceMs, logLevel, agentVariables: variables }: GatewayConfig,
  {
    url,
    apiKey,
    demoOrigin,
    isServed,
    log,
  }: {
    /** Where the gateway serves already. */
    readonly url: string
    readonly apiKey: string | null
    readonly demoOrigin: string | null
    /** Whether any node serves. */
    readonly isServed: () => boolean
    readonly log: Logger
  },
): Promise<DemoAgent | null> {
  if (apiKey === null || demoOrigin === null) return null
  try {
    const gatewayUrl = reachableUrl(url)
    const options = { gatewayUrl, apiKey, backendUrl: demoOrigin, dataFolder, logLevel, variables }
    const agent = await startNodeAgent({ ...options, drainMs: shutdownGraceMs }, log)
    const deadline = performance.now() + SERVING_TIMEOUT_MS
    while (!isServed() && performance.now() < deadline) await sleep(SERVING_POLL_MS)
    return agent
  } catch (error) {
    if (error instanceof GatewayError) throw new StartFailure(`node agent: ${error.message}`)
    throw error
  }
}
