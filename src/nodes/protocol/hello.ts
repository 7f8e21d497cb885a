import type { IncomingHttpHeaders } from 'node:http'
import { NODE_DIALECTS } from './dialects.ts'

/**
 * Headers of a node's handshake, which the node writes and the gateway reads. Source: the public
 * node client (facts).
 */

/** Types of nodes: LLM for chat, and DIFFUSION for images, with exactly one model. */
export const NODE_TYPES = ['LLM', 'DIFFUSION'] as const
export type NodeType = (typeof NODE_TYPES)[number]

/** Extensions that our own agent announces (README). */
const NODE_FEATURES = [
  'cancel',
  'drain',
  'trace',
  'extra-members',
  'large-frames',
  'remote-media',
  ...NODE_DIALECTS,
] as const
export type NodeFeature = (typeof NODE_FEATURES)[number]

/**
 * What a node says about itself when it connects. An attacker may control these values; only their
 * form is checked.
 */
export type NodeHello = {
  readonly nodeId: string
  /** The model in the `Model` header, then the models in `Node-Models`, without duplicates. */
  readonly models: readonly string[]
  readonly modelType: NodeType
  readonly features: ReadonlySet<NodeFeature>
}

/** The interface sets no limit. A real node id has at most 44 characters. */
export const NODE_ID_LENGTH_MAX = 128
const MODEL_LENGTH_MAX = 256
const MORE_MODELS_MAX = 16
export const MODELS_MAX = 1 + MORE_MODELS_MAX

/**
 * Close codes that the gateway sends (RFC 6455 section 7.4.1 and its IANA registry). `policy`
 * refuses a node. `later`: the gateway has no room for the node.
 */
export const CLOSE_CODES = {
  protocol: 1002,
  notText: 1003,
  policy: 1008,
  fault: 1011,
  restart: 1012,
  later: 1013,
} as const

/** The deployed service's texts are used where they are known. */
const FAULTS = {
  nodeIdMissing: 'Node-Id header is required',
  nodeIdMalformed: 'Node-Id header is not a node id',
  modelMissing: 'No "Model" header provided',
  modelMalformed: 'Model header is not a model id',
  modelsMalformed: `Node-Models header is not a list of at most ${MORE_MODELS_MAX} model ids`,
  modelTypeUnknown: 'Model-Type header is neither LLM nor DIFFUSION',
} as const

/** Returns the headers of a handshake, without the header that contains the API key. */
export function helloHeaders({
  nodeId,
  models,
  modelType,
  features,
}: NodeHello): Record<string, string> {
  const [model = '', ...others] = models
  return {
    'node-id': nodeId,
    model,
    'model-type': modelType,
    'node-features': [...features].join(', '),
    ...(others.length === 0 ? {} : { 'node-models': others.join(', ') }),
  }
}

/** An attacker may control the headers. The node gets the reason of a refusal. */
export function parseHello(
  headers: IncomingHttpHeaders,
):
  | { readonly kind: 'hello'; readonly hello: NodeHello }
  | { readonly kind: 'refused'; readonly reason: string } {
  const refuse = (fault: keyof typeof FAULTS) =>
    ({ kind: 'refused', reason: FAULTS[fault] }) as const
  const nodeId = headerOf(headers, 'node-id')
  if (nodeId === null) return refuse('nodeIdMissing')
  if (nodeId.length > NODE_ID_LENGTH_MAX || !NODE_ID.test(nodeId)) return refuse('nodeIdMalformed')
  const model = headerOf(headers, 'model')
  if (model === null) return refuse('modelMissing')
  if (!isModelId(model)) return refuse('modelMalformed')
  const more = listOf(headerOf(headers, 'node-models'))
  if (more.length > MORE_MODELS_MAX || !more.every(isModelId)) return refuse('modelsMalformed')
  const modelType = headerOf(headers, 'model-type') ?? 'LLM'
  if (modelType !== 'LLM' && modelType !== 'DIFFUSION') return refuse('modelTypeUnknown')
  const announced = listOf(headerOf(headers, 'node-features'))
  const features = new Set(NODE_FEATURES.filter((feature) => announced.includes(feature)))
  return {
    kind: 'hello',
    hello: { nodeId, models: [...new Set([model, ...more])], modelType, features },
  }
}

/** Returns a header's value. Null when the header is missing or empty. */
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

const NODE_ID = /^[\x21-\x7e]+$/

/** A model id may contain blanks, because llama.cpp takes the id from the name of its file. */
function isModelId(text: string): boolean {
  return text.length <= MODEL_LENGTH_MAX && /^[\x20-\x7e]+$/.test(text)
}
