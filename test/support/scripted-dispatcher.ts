import { FormatError } from '#attestation/errors.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { ServingNodes } from '#src/nodes/hub/open-nodes.ts'
import type { AnswerReader } from '#src/nodes/runs/chat-run.ts'
import type { ChunkBatch } from '#src/nodes/runs/chunk-queue.ts'
import type { NodeCall } from '#src/nodes/runs/dispatch.ts'
import { DispatchError } from '#src/nodes/runs/dispatch-error.ts'

/**
 * What a scripted dispatcher does with a call: it gives chunks, or throws. `call.signal`, or the
 * end of the generator, shows that the caller left.
 */
export type DispatchScript = (call: NodeCall) => Promise<Chunks> | Chunks

type Chunks = AsyncIterable<JsonObject>

/** Nodes without sockets, for tests of the parts before them. */
export type ScriptedDispatcher = ServingNodes & {
  readonly calls: readonly NodeCall[]
  setScript(script: DispatchScript): void
  setModels(models: readonly string[]): void
}

/** Makes a dispatcher; by default it answers `hello`. */
export function createScriptedDispatcher(): ScriptedDispatcher {
  const calls: NodeCall[] = []
  let script: DispatchScript = () => chunksOf(...HELLO)
  let models: readonly string[] = []
  return {
    calls,
    dispatcher: {
      async dispatch(call) {
        calls.push(call)
        const chunks = await script(call)
        return { nodeId: 'a_scripted_node', batches: read(chunks, call.openReader?.()) }
      },
      models: () => models.map((model) => ({ model, nodes: 1 })),
    },
    handleUpgrade: (_, socket) => void socket.destroy(),
    disconnect: () => false,
    status: () => {
      throw new TypeError('expected nobody to measure scripted nodes')
    },
    countStates: () => new Map(),
    stop: async () => undefined,
    setScript: (next) => {
      script = next
    },
    setModels: (next) => {
      models = next
    },
  }
}

/** As in a run: if the call's reader refuses a chunk, that is the node's failure. */
async function* read(chunks: Chunks, reader: AnswerReader | undefined): AsyncGenerator<ChunkBatch> {
  try {
    for await (const chunk of chunks) {
      const bytes = JSON.stringify(chunk).length
      yield { chunks: reader?.push(chunk) ?? [chunk], bytes }
    }
    reader?.finish()
  } catch (error) {
    throw error instanceof FormatError ? new DispatchError('node_failed', error.message) : error
  }
}

/** A chunk of choice 0 as backends send it. */
export function nodeChunk(delta: JsonObject, finishReason: string | null = null): JsonObject {
  return {
    id: 'node-1',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'what-the-node-calls-it',
    choices: [{ index: 0, delta, finish_reason: finishReason }],
  }
}

/** The chunk with usage alone. */
export function nodeUsage(promptTokens: number, completionTokens: number): JsonObject {
  const usage = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  }
  return { ...nodeChunk({}), choices: [], usage }
}

export const HELLO: readonly JsonObject[] = [
  nodeChunk({ role: 'assistant', content: '' }),
  nodeChunk({ content: 'hel' }),
  nodeChunk({ content: 'lo' }),
  nodeChunk({}, 'stop'),
  nodeUsage(5, 2),
]

/** The chunks, one after another. */
export async function* chunksOf(...chunks: readonly JsonObject[]): AsyncGenerator<JsonObject> {
  yield* chunks
}
