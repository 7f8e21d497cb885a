import { type Agent, type AgentOptions, type AgentTimings, startAgent } from '#src/agent/agent.ts'
import { type Backend, createBackend } from '#src/agent/backend.ts'
import type { Logger } from '#src/observability/logger.ts'
import { createLogger } from '#src/observability/logger.ts'

/** Timings of an agent under test: it connects again at once, and has no long waits. */
export const FAST_TIMINGS: AgentTimings = {
  handshakeTimeoutMs: 2_000,
  pingMs: 10_000,
  closeTimeoutMs: 500,
  backOff: { minMs: 10, maxMs: 50 },
  steadyMs: 1_000,
  drainMs: 2_000,
}

/** An agent in this process, with an invented machine. */
export type TestAgent = Agent & { readonly backend: Backend; readonly logLines: readonly string[] }

export type TestAgentOptions = Partial<AgentOptions> & {
  readonly gatewayUrl: string
  readonly apiKey: string
  readonly nodeId: string
  readonly backendUrl: string
}

/** Starts an agent that registers with an injected machine and a benchmark of some milliseconds. */
export function startTestAgent({ backendUrl, ...options }: TestAgentOptions): TestAgent {
  const backend = createBackend({ url: backendUrl, apiKey: null })
  const logLines: string[] = []
  const log: Logger = createLogger({
    level: 'debug',
    destination: { write: (line) => void logLines.push(line) },
  })
  const agent = startAgent({
    backend,
    models: null,
    readHardware: async () => ({
      gpu_model: null,
      vram: 0,
      gpu_count: 0,
      cpu_model: 'Test',
      cpu_count: 1,
      ram: 1024,
      network_download_speed: null,
      network_upload_speed: null,
      operating_system: 'Test 1',
      version: '0.1.0',
      power_limit: null,
    }),
    readLoad: async () => ({ cpuPercent: 1, ramPercent: 2, diskPercent: 3, gpus: [] }),
    benchmark: { durationMs: 20, concurrency: 1 },
    timings: FAST_TIMINGS,
    now: () => performance.now(),
    random: Math.random,
    log,
    ...options,
  })
  void agent.done.catch(() => undefined).then(() => backend.close())
  return { ...agent, backend, logLines }
}
