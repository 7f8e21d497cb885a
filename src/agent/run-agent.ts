import type { Logger } from '../observability/logger.ts'
import { openTraces } from '../observability/traces.ts'
import { VERSION } from '../runtime/version.ts'
import { startAgent } from './agent.ts'
import type { BenchmarkProgress } from './benchmark.ts'
import type { AgentConfig } from './config.ts'
import { openBackend } from './find-backend.ts'
import { readHardware, readLoad } from './machine.ts'
import { traceRuns } from './trace-runs.ts'

/** Sent over IPC to the parent process when the agent has a backend and runs. */
export type AgentReady = { readonly kind: 'ready'; readonly nodeId: string }

/**
 * The first SIGTERM or SIGINT drains the agent, a second signal ends it at once. The agent also
 * ends when the IPC channel closes, because the parent process has then ended. Rejects with
 * AgentFailure.
 */
export async function runAgent(
  config: AgentConfig,
  {
    log,
    onBenchmarkProgress,
  }: {
    readonly log: Logger
    readonly onBenchmarkProgress?: (model: string, progress: BenchmarkProgress) => void
  },
): Promise<void> {
  const { backend, name } = await openBackend(config.backend)
  log.info({ backend: name, node_id: config.nodeId }, 'agent starts')
  const traces =
    config.traces === null
      ? null
      : openTraces(config.traces, { version: VERSION, now: Date.now, log })
  const agent = startAgent({
    gatewayUrl: config.gatewayUrl,
    apiKey: config.apiKey,
    nodeId: config.nodeId,
    nodeType: config.nodeType,
    fetchesMedia: config.fetchesMedia,
    backend,
    models: config.backend.models,
    readHardware,
    readLoad,
    benchmark: config,
    tokensPerSecondMin: config.tokensPerSecondMin,
    ...(onBenchmarkProgress === undefined ? {} : { onBenchmarkProgress }),
    timings: { drainMs: config.drainMs },
    watchRun: traces === null ? undefined : traceRuns(traces.tracer),
    now: () => performance.now(),
    random: Math.random,
    log,
  })
  notifyParent({ kind: 'ready', nodeId: config.nodeId })
  let stoppingSince: number | null = null
  const stop = (signal: string) => {
    if (stoppingSince !== null) {
      if (performance.now() - stoppingSince > SAME_SIGNAL_MS) process.exit(1)
      return
    }
    stoppingSince = performance.now()
    log.info({ signal, running: agent.status().running }, 'stopping')
    void agent.stop()
  }
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(signal))
  process.once('disconnect', () => process.exit(1))
  try {
    await agent.done
    log.info({}, 'stopped')
  } finally {
    await backend.close()
    await traces?.close()
  }
}

/** One Ctrl-C can arrive twice: from the terminal, and from npm. */
const SAME_SIGNAL_MS = 500

function notifyParent(ready: AgentReady): void {
  // A failed send is ignored: if the parent has just ended, a 'disconnect' event follows.
  if (process.connected) process.send?.(ready, undefined, undefined, () => undefined)
}
