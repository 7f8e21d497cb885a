import type { Load } from '../nodes/protocol/control-frames.ts'
import type { NodeDialect } from '../nodes/protocol/dialects.ts'
import { CLOSE_CODES, type NodeType } from '../nodes/protocol/hello.ts'
import type { NodeHardware } from '../nodes/protocol/registration.ts'
import type { Logger } from '../observability/logger.ts'
import { type BackOffBounds, backOffMs } from '../runtime/back-off.ts'
import { pause } from '../runtime/loop.ts'
import type { Backend } from './backend.ts'
import { BackendError } from './backend-error.ts'
import {
  BENCHMARK,
  type BenchmarkPlan,
  type BenchmarkProgress,
  TOKENS_PER_SECOND_MIN,
} from './benchmark.ts'
import {
  CONNECTION_TIMINGS,
  type Connection,
  type ConnectionEnd,
  type ConnectionTimings,
  openConnection,
} from './connection.ts'
import { createGatewayClient, GatewayError } from './gateway-client.ts'
import { AgentFailure, prepareNode } from './registration.ts'
import type { RunWatcher } from './runs.ts'

/** Milliseconds. */
export type AgentTimings = ConnectionTimings & {
  readonly backOff: BackOffBounds
  /** After a connection that was open this long, earlier failures no longer count. */
  readonly steadyMs: number
  readonly drainMs: number
}

export const AGENT_TIMINGS: AgentTimings = {
  ...CONNECTION_TIMINGS,
  // The public node client waits 24 s, but a restarted gateway is reachable sooner.
  backOff: { minMs: 1_000, maxMs: 60_000 },
  steadyMs: 10_000,
  drainMs: 30_000,
}

export type AgentOptions = {
  /** `http(s)://host[:port][/path]`, without `/v1`. */
  readonly gatewayUrl: string
  readonly apiKey: string
  readonly nodeId: string
  /** Default LLM. */
  readonly nodeType?: NodeType
  /** True if the backend may receive URLs of images and fetch the images. Default false. */
  readonly fetchesMedia?: boolean
  /** The caller must close the backend after `done` has settled. */
  readonly backend: Backend
  /** Null selects all models that the backend lists. */
  readonly models: readonly string[] | null
  readonly readHardware: () => Promise<NodeHardware>
  readonly readLoad: () => Promise<Load>
  readonly benchmark?: BenchmarkPlan
  readonly tokensPerSecondMin?: number
  readonly onBenchmarkProgress?: (model: string, progress: BenchmarkProgress) => void
  readonly timings?: Partial<AgentTimings>
  readonly watchRun?: RunWatcher | undefined
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number
  /** At least 0 and less than 1. */
  readonly random: () => number
  readonly log: Logger
}

type AgentStatus = {
  readonly phase: 'registering' | 'connecting' | 'connected' | 'waiting' | 'draining' | 'stopped'
  readonly models: readonly string[]
  readonly running: number
  readonly connections: number
}

export type Agent = {
  /** Accepts no new requests, and waits at most `drainMs` for the running requests. */
  stop(): Promise<void>
  /** Rejects with AgentFailure if the agent's configuration cannot work. */
  readonly done: Promise<void>
  status(): AgentStatus
}

/** When the connection ends, the agent connects again. */
export function startAgent(options: AgentOptions): Agent {
  const timings = { ...AGENT_TIMINGS, ...options.timings }
  const { log } = options
  const stopping = new AbortController()
  const isStopping = () => stopping.signal.aborted
  const nodeType = options.nodeType ?? 'LLM'
  let phase: AgentStatus['phase'] = 'registering'
  let models: readonly string[] = []
  let dialects: readonly NodeDialect[] = []
  let connections = 0
  let connection: Connection | null = null

  async function serveOnce(): Promise<ConnectionEnd> {
    if (models.length === 0) {
      phase = 'registering'
      models = await register(options, stopping.signal)
      dialects = nodeType === 'LLM' ? await options.backend.listDialects() : []
      stopping.signal.throwIfAborted()
    }
    phase = 'connecting'
    const served = { nodeType, models, dialects, timings, onOpen: recordOpen }
    connection = openConnection({ ...options, ...served })
    return connection.closed
  }

  function recordOpen(): void {
    phase = 'connected'
    connections += 1
    log.info({ node_id: options.nodeId, models, dialects }, 'connected')
  }

  async function keepServing(): Promise<void> {
    let failures = 0
    while (!isStopping()) {
      const outcome = await serveOnce().catch((error) =>
        isStopping() ? null : faultOf(error, connections > 0, log),
      )
      connection = null
      if (isStopping()) break
      failures = countFailures(failures, outcome, timings.steadyMs)
      // The gateway may have lost the node's data. An empty list makes the agent register again.
      if (outcome?.code === CLOSE_CODES.policy) models = []
      phase = 'waiting'
      const pauseMs = backOffMs(failures, timings.backOff, {
        jitter: 'full',
        random: options.random,
      })
      if (outcome !== null) log.info({ ...outcome, pause_ms: Math.round(pauseMs) }, 'disconnected')
      await pause(pauseMs, stopping.signal)
    }
  }

  const done = keepServing().finally(() => {
    phase = 'stopped'
  })
  // If the caller never reads `done`, a rejection must still not end the process.
  done.catch(() => undefined)
  return {
    done,
    stop: async () => {
      if (phase !== 'stopped') phase = 'draining'
      stopping.abort()
      await connection?.drain(timings.drainMs)
      await done.catch(() => undefined)
    },
    status: () => ({ phase, models, running: connection?.status().running ?? 0, connections }),
  }
}

async function register(options: AgentOptions, signal: AbortSignal): Promise<readonly string[]> {
  const { gatewayUrl: url, apiKey } = options
  return await prepareNode(
    {
      ...options,
      nodeType: options.nodeType ?? 'LLM',
      gateway: createGatewayClient({ url, apiKey, signal }),
      plan: options.benchmark ?? BENCHMARK,
      tokensPerSecondMin: options.tokensPerSecondMin ?? TOKENS_PER_SECOND_MIN,
      ...(options.onBenchmarkProgress === undefined
        ? {}
        : { onProgress: options.onBenchmarkProgress }),
    },
    signal,
  )
}

/**
 * Throws AgentFailure for a permanent fault. Once the node has served, no fault counts as
 * permanent, because the gateway may have caused the fault.
 */
function faultOf(error: unknown, hasServed: boolean, log: Logger): null {
  const isFinal = error instanceof AgentFailure || (error instanceof GatewayError && error.isFinal)
  if (isFinal && !hasServed)
    throw error instanceof AgentFailure ? error : new AgentFailure(error.message)
  // During registration, the backend receives no caller's prompt, so the error's message contains
  // no prompt.
  if (error instanceof GatewayError || error instanceof AgentFailure)
    log.warn({ fault: error.message }, 'not registered')
  else if (error instanceof BackendError)
    log.warn({ fault: error.message }, 'the backend cannot be used')
  else log.error({ err: error }, 'not registered')
  return null
}

function countFailures(before: number, outcome: ConnectionEnd | null, steadyMs: number): number {
  if (outcome === null || outcome.openMs === null) return before + 1
  if (outcome.isRequested) return 0
  if (outcome.code === CLOSE_CODES.policy || outcome.code === CLOSE_CODES.later) return before + 1
  return outcome.openMs >= steadyMs ? 1 : before + 1
}
