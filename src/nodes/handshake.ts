import type { IncomingHttpHeaders } from 'node:http'
import type { NodeLimits } from './limits.ts'
import { type NodeState, startState } from './node-state.ts'
import type { NodeRegistry } from './ports.ts'

/** What a node says of itself when it dials. Attacker-controlled, but of the right form. */
export type NodeHello = {
  readonly nodeId: string
  /** Its `Model` first, then those of `Node-Models`, each once. */
  readonly models: readonly string[]
  readonly modelType: 'LLM' | 'DIFFUSION'
  readonly features: ReadonlySet<NodeFeature>
}

/** Extensions that our own agent announces (README). */
export const NODE_FEATURES = ['cancel', 'drain', 'trace', 'extra-members', 'large-frames'] as const
export type NodeFeature = (typeof NODE_FEATURES)[number]

/** A node that may connect. */
export type AcceptedNode = NodeHello & {
  readonly accountId: string
  /** The state it starts with. */
  readonly state: NodeState
  readonly vramMb: number | null
}

/** What the node is told with close code 1008. The words are the deployed service's where they are known. */
export type Refusal = { readonly kind: 'refused'; readonly reason: string }

export const REFUSALS = {
  nodeIdMissing: 'Node-Id header is required',
  nodeIdMalformed: 'Node-Id header is not a node id',
  modelMissing: 'No "Model" header provided',
  modelMalformed: 'Model header is not a model id',
  modelsMalformed: 'Node-Models header is not a list of at most 16 model ids',
  modelTypeUnknown: 'Model-Type header is neither LLM nor DIFFUSION',
  /** Also for another account's node: whose it is, is nobody's business. */
  nodeUnknown: 'Node is not registered',
  nodeArchived: 'Node is archived',
  nodeDisabled: 'Node is disabled',
  benchmarkMissing: 'Benchmarking is not completed',
  nodeConnected: 'Node with same node id already connected',
} as const

export const NODE_ID_LENGTH_MAX = 128
export const MODEL_LENGTH_MAX = 256
/** Besides `Model`. */
export const MORE_MODELS_MAX = 16

/** Parses the headers of a node's handshake. */
export function parseHello(
  headers: IncomingHttpHeaders,
): { readonly kind: 'hello'; readonly hello: NodeHello } | Refusal {
  const nodeId = headerOf(headers, 'node-id')
  if (nodeId === null) return refuse('nodeIdMissing')
  if (!isPrintable(nodeId, NODE_ID_LENGTH_MAX)) return refuse('nodeIdMalformed')
  const model = headerOf(headers, 'model')
  if (model === null) return refuse('modelMissing')
  if (!isPrintable(model, MODEL_LENGTH_MAX)) return refuse('modelMalformed')
  const more = listOf(headerOf(headers, 'node-models'))
  if (more.length > MORE_MODELS_MAX || !more.every((name) => isPrintable(name, MODEL_LENGTH_MAX)))
    return refuse('modelsMalformed')
  const modelType = headerOf(headers, 'model-type') ?? 'LLM'
  if (modelType !== 'LLM' && modelType !== 'DIFFUSION') return refuse('modelTypeUnknown')
  const announced = listOf(headerOf(headers, 'node-features'))
  const features = new Set(NODE_FEATURES.filter((feature) => announced.includes(feature)))
  return { kind: 'hello', hello: { nodeId, models: [...new Set([model, ...more])], modelType, features } }
}

/**
 * Checks a node against the registry: it is the account's, neither archived nor disabled, and an LLM has a benchmark of
 * its model that is fast enough. Rejects when the database is away. The benchmark is the node's own claim: it lets it
 * connect, and nothing more.
 */
export async function checkHello(
  hello: NodeHello,
  accountId: string,
  { registry, limits }: { readonly registry: NodeRegistry; readonly limits: NodeLimits },
): Promise<{ readonly kind: 'accepted'; readonly node: AcceptedNode } | Refusal> {
  const registered = await registry.find(hello.nodeId)
  if (registered === null || registered.accountId !== accountId) return refuse('nodeUnknown')
  if (registered.isArchived) return refuse('nodeArchived')
  const state = startState(registered.state)
  if (state === 'RUNNING_DISABLED') return refuse('nodeDisabled')
  // An image frame names no model: the connection is of one.
  const models =
    hello.modelType === 'LLM' ? await benchmarked(hello, registry, limits) : hello.models.slice(0, 1)
  // Further models may lack theirs; the one it names first may not.
  if (models[0] !== hello.models[0]) return refuse('benchmarkMissing')
  const vramMb = registered.hardware?.vram ?? null
  return { kind: 'accepted', node: { ...hello, models, accountId, state, vramMb } }
}

async function benchmarked(
  { nodeId, models }: NodeHello,
  registry: NodeRegistry,
  { tokensPerSecondMin }: NodeLimits,
): Promise<readonly string[]> {
  const benchmarks = await Promise.all(models.map((model) => registry.findBenchmark(nodeId, model)))
  return models.filter((_, index) => (benchmarks[index]?.tokensPerSecond ?? 0) >= tokensPerSecondMin)
}

function refuse(reason: keyof typeof REFUSALS): Refusal {
  return { kind: 'refused', reason: REFUSALS[reason] }
}

/** A header's value; null when it is missing or empty. */
function headerOf(headers: IncomingHttpHeaders, name: string): string | null {
  const value = headers[name]
  return typeof value === 'string' && value.trim() !== '' ? value.trim() : null
}

function listOf(header: string | null): readonly string[] {
  return (header ?? '')
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')
}

function isPrintable(text: string, lengthMax: number): boolean {
  return text.length <= lengthMax && /^[\x21-\x7e]+$/.test(text)
}
