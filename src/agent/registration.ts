import { MODELS_MAX, type NodeType } from '../nodes/protocol/hello.ts'
import type { NodeHardware } from '../nodes/protocol/registration.ts'
import type { Logger } from '../observability/logger.ts'
import type { Backend } from './backend.ts'
import { BackendError } from './backend-error.ts'
import { type BenchmarkPlan, type BenchmarkProgress, runBenchmark } from './benchmark.ts'
import type { GatewayClient } from './gateway-client.ts'

/** A fault that a retry cannot remove. The message is for the node's operator. */
export class AgentFailure extends Error {
  override readonly name = 'AgentFailure'
}

type RegistrationOptions = {
  readonly gateway: GatewayClient
  readonly nodeId: string
  readonly nodeType: NodeType
  readonly backend: Backend
  /** Null selects all models that the backend lists. */
  readonly models: readonly string[] | null
  readonly readHardware: () => Promise<NodeHardware>
  readonly plan: BenchmarkPlan
  /** A slower model is measured again. If it is still slower, it is left out. */
  readonly tokensPerSecondMin: number
  readonly onProgress?: (model: string, progress: BenchmarkProgress) => void
  readonly now: () => number
  readonly log: Logger
}

/**
 * Registers a node, so that the gateway allows it to connect. The calls have the same order as in
 * the public client. Nodes for images have one model and no benchmark. Returns at least one model,
 * and leaves out slow models, and listed models that fail. Rejects with AgentFailure, and
 * with GatewayError or BackendError for faults that may be temporary.
 */
export async function prepareNode(
  options: RegistrationOptions,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { gateway, nodeId, nodeType, readHardware, log } = options
  const info = await gateway.findNode(nodeId)
  if (info === null)
    throw new AgentFailure(`the gateway knows no node ${nodeId} of this key's account`)
  const models = await findModels(options)
  const hardware = await readHardware()
  const names = Object.keys(hardware) as (keyof NodeHardware)[]
  if (
    typeof info.cpu_model !== 'string' ||
    names.some((name) => name in info && (info[name] ?? null) !== hardware[name])
  ) {
    await gateway.saveHardware(nodeId, hardware)
    log.info({ node_id: nodeId }, 'hardware saved')
  }
  if (nodeType === 'DIFFUSION') return models
  const served: string[] = []
  const faults: string[] = []
  let hasFailed = false
  for (const model of models) {
    signal.throwIfAborted()
    try {
      const fault = await ensureBenchmark(model, options, signal)
      if (fault === null) served.push(model)
      else faults.push(fault)
    } catch (error) {
      const isNamed = options.models !== null
      if (!(error instanceof BackendError) || isNamed) throw error
      // Rejects if the backend is down. Then the fault is not the model's.
      await options.backend.listModels()
      hasFailed = true
      faults.push(`${model}: ${error.message}`)
    }
  }
  if (served.length === 0) {
    const message = faults.join('; ')
    throw hasFailed ? new BackendError(message) : new AgentFailure(message)
  }
  for (const fault of faults) log.warn({ fault }, 'model left out')
  return served
}

/** Some image servers list no models. Then the gateway's first probe tests the configured name. */
async function findModels(options: RegistrationOptions): Promise<readonly string[]> {
  const { nodeType, models, backend } = options
  if (nodeType === 'LLM') return chooseModels(await backend.listModels(), options)
  const chosen = chooseModels(models ?? (await backend.listModels()), options)
  if (chosen.length > 1)
    throw new AgentFailure(
      'a node makes images with one model: name it with NODE_MODELS or --model',
    )
  return chosen
}

/** Model names that fit into a comma-separated header, whose reader drops outer blanks. */
const MODEL_NAME = /^(?! )[\x20-\x2b\x2d-\x7e]{1,256}(?<! )$/

/** Throws AgentFailure, or BackendError when some models are missing. */
export function chooseModels(
  offered: readonly string[],
  { models, log }: Pick<RegistrationOptions, 'models' | 'log'>,
): readonly string[] {
  if (models === null && offered.length === 0) throw new BackendError('the backend lists no model')
  const missing = (models ?? []).filter((model) => !offered.includes(model))
  // The backend may still be loading these models.
  if (missing.length > 0) throw new BackendError(`the backend does not list ${missing.join(', ')}`)
  const chosen = [...new Set(models ?? offered)]
  const nameable = chosen.filter((model) => MODEL_NAME.test(model)).slice(0, MODELS_MAX)
  if (nameable.length < chosen.length)
    log.warn(
      { left_out: chosen.length - nameable.length, models_max: MODELS_MAX },
      'models left out',
    )
  if (nameable.length === 0)
    throw new AgentFailure('no model of the backend has a name that a node can be asked for')
  return nameable
}

/** Returns the fault of a model that is too slow. Null if the model is fast enough. */
async function ensureBenchmark(
  model: string,
  options: RegistrationOptions,
  signal: AbortSignal,
): Promise<string | null> {
  const { gateway, nodeId, backend, plan, tokensPerSecondMin, onProgress, now, log } = options
  const stored = await gateway.findBenchmark(nodeId, model)
  if (stored !== null && stored >= tokensPerSecondMin) {
    log.info({ model, tokens_per_second: stored }, 'benchmark known')
    return null
  }
  log.info({ model, duration_ms: plan.durationMs }, 'benchmark begins')
  const { single, total } = await runBenchmark(backend, model, {
    plan,
    now,
    signal,
    onProgress: (progress) => onProgress?.(model, progress),
  })
  log.info({ model, tokens_per_second: total, tokens_per_second_single: single }, 'benchmark ended')
  if (total < tokensPerSecondMin)
    return `${model} answers ${total} tokens per second, fewer than the ${tokensPerSecondMin} that a node needs`
  await gateway.saveBenchmark({ nodeId, model, tokensPerSecond: total })
  return null
}
