import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { JsonObject } from '#attestation/json/value.ts'
import { checkImages } from '#src/images/checked-images.ts'
import { createHub, type Hub, type HubOptions } from '#src/nodes/hub/hub.ts'
import type { NodeAnswer } from '#src/nodes/runs/dispatch.ts'
import { NODE_LIMITS, type NodeLimits } from '#src/nodes/runs/limits.ts'
import { createLogger } from '#src/observability/logger.ts'
import {
  createMemoryRegistry,
  type MemoryRegistry,
  type Registration,
  TEST_ACCOUNT,
  TEST_PROCESS,
} from './memory-registry.ts'
import {
  connectScriptedNode,
  type ScriptedNode,
  type ScriptedNodeOptions,
} from './scripted-node.ts'
import { until } from './until.ts'

export const TEST_KEY = 'test-key'
export const OTHER_KEY = 'other-key'
export const INFERENCE_KEY = 'inference-key'
export const OTHER_ACCOUNT = '00000000-0000-4000-8000-000000000002'
export const MODEL = 'model-a'
/** Expected in the status of nodes when everything has ended: nothing is held. */
export const NOTHING_HELD = { slotsInUse: 0, runs: 0, queued: 0, timers: 0, sockets: 0 } as const

/** Limits with which all ends within seconds, and a busy machine's pauses end nothing. */
export const QUICK_LIMITS: NodeLimits = {
  ...NODE_LIMITS,
  firstTokenMs: 1_500,
  tokenMs: 1_500,
  finishGraceMs: 100,
  drainMs: 300,
  runMs: 30_000,
  waitMs: 200,
  tickMs: 10,
  tendMs: 20,
  takeoverMs: 1_000,
  closeTimeoutMs: 300,
}

/** A server with nodes: real sockets, a registry in memory. */
export type NodesStage = {
  readonly url: string
  readonly nodes: Hub
  readonly registry: MemoryRegistry
  /**
   * Connects a node; registers it first (RUNNING before, with a benchmark for its model) if it is
   * not registered.
   */
  connect(
    node?: Partial<ScriptedNodeOptions> & { readonly registered?: Partial<Registration> },
  ): Promise<ScriptedNode>
  /** Dispatches a call. */
  dispatch(call?: {
    readonly model?: string
    readonly request?: JsonObject
    readonly signal?: AbortSignal
  }): Promise<NodeAnswer>
  close(): Promise<void>
}

export async function openNodesStage(
  limits: Partial<NodeLimits> = {},
  options: Partial<HubOptions> = {},
): Promise<NodesStage> {
  const registry = createMemoryRegistry()
  const nodes = createHub({
    nodes: registry,
    processId: () => TEST_PROCESS,
    inferences: registry.sink,
    authenticate: async (key) => callerOf(key),
    limits: { ...QUICK_LIMITS, ...limits },
    now: () => performance.timeOrigin + performance.now(),
    random: Math.random,
    makeId: randomUUID,
    checkImage: (images) => checkImages(images, { n: 1, size: null }),
    log: createLogger({ level: 'silent', destination: { write: () => undefined } }),
    ...options,
  })
  const server = createServer()
  server.on('upgrade', nodes.handleUpgrade)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const sockets: ScriptedNode[] = []
  let count = 0

  return {
    url,
    nodes,
    registry,
    async connect({ registered, ...node } = {}) {
      const nodeId = node.nodeId ?? `node-${++count}`
      const model = node.model ?? MODEL
      if ((await registry.find(nodeId)) === null)
        registry.register({ nodeId, state: 'STOPPED', benchmarks: { [model]: 50 }, ...registered })
      const connected = await connectScriptedNode({ url, key: TEST_KEY, ...node, nodeId, model })
      sockets.push(connected)
      return connected
    },
    dispatch: ({ model = MODEL, request, signal = new AbortController().signal } = {}) =>
      nodes.dispatcher.dispatch({
        model,
        request: request ?? { model, messages: [{ role: 'user', content: 'Hi' }] },
        accountId: TEST_ACCOUNT,
        signal,
      }),
    async close() {
      for (const { socket } of sockets) socket.terminate()
      await nodes.stop()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Accounts by key; the third key is not for nodes. */
function callerOf(key: string) {
  if (key === TEST_KEY) return { accountId: TEST_ACCOUNT, scopes: ['nodes'] as const }
  if (key === INFERENCE_KEY) return { accountId: TEST_ACCOUNT, scopes: ['inference'] as const }
  if (key === OTHER_KEY) return { accountId: OTHER_ACCOUNT, scopes: ['nodes'] as const }
  return null
}

/** All chunks of an answer. */
export async function readAll(answer: NodeAnswer): Promise<readonly JsonObject[]> {
  const chunks: JsonObject[] = []
  for await (const batch of answer.batches) chunks.push(...batch.chunks)
  return chunks
}

/** The text of an answer's only choice. */
export function textOf(chunks: readonly JsonObject[]): string {
  return chunks
    .flatMap(
      ({ choices }) => choices as readonly { readonly delta: { readonly content?: string } }[],
    )
    .map(({ delta }) => delta.content ?? '')
    .join('')
}

/** Waits until the hub has looked after its nodes again; needs one that is connected, and `seenMs`. */
export async function untilTended({ registry }: Pick<NodesStage, 'registry'>): Promise<void> {
  const rounds = () => registry.writes.filter((write) => write.startsWith('seen')).length
  const before = rounds()
  await eventually(() => rounds() > before + 1, 'the nodes are looked after')
}

/** Waits until `isTrue`. */
export const eventually = (isTrue: () => boolean, what: string) => until(what, isTrue)
