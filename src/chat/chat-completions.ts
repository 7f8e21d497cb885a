import { addChunk, emptyAssembly, finishAssembly } from '../../attestation/assemble-completion.ts'
import { type JsonObject, memberOf } from '../../attestation/json/value.ts'
import type { ChunkBatch } from '../nodes/runs/chunk-queue.ts'
import type { Dispatcher, NodeAnswer } from '../nodes/runs/dispatch.ts'
import { DispatchError, nodeCallErrorOf } from '../nodes/runs/dispatch-error.ts'
import { type InferenceFacts, recordInference } from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import type { ChatRequest } from './chat-request.ts'
import { estimateUsage } from './chat-tokens.ts'
import { createNodeChunks, type NodeChunks } from './node-chunks.ts'

/** A valid call for a plain completion. */
export type ChatCall = {
  readonly request: Pick<ChatRequest, 'model' | 'includesUsage'>
  /** The caller's request, as it goes to the node. */
  readonly body: JsonObject
  readonly accountId: string
  readonly requestId: string
  /** Aborted, with the error to throw, when the caller leaves or the gateway stops. */
  readonly signal: AbortSignal
  /**
   * Called once, when the answer is over in any way, with the tokens that it used in all; never
   * when no node answered. `promptTokens`: how many of them are the prompt's, where the node says
   * so.
   */
  readonly recordUsage: (tokens: number, promptTokens: number | undefined) => void
  /**
   * Counts bytes that are held for this call; throws ApiError `overloaded` when all calls hold too
   * much.
   */
  readonly reserve: (bytes: number) => void
}

/**
 * Plain completions, made by contributed nodes. Both methods throw ApiError and the signal's
 * reason.
 */
export type ChatCompletions = {
  /** Makes a completion and gives its JSON text (interface 2.2). `usage` is always there. */
  complete(call: ChatCall): Promise<string>
  /**
   * The same, streamed, as the JSON texts of the caller's chunks, at each step those that came
   * together; resolves when a node has begun to answer. The iteration throws when the answer broke
   * off, and else ends after its last chunk. Leaving it cancels the call.
   */
  stream(call: ChatCall): Promise<AsyncIterable<readonly string[]>>
}

type ChatCompletionsOptions = {
  /** Bounds the time and the bytes of each answer. */
  readonly dispatcher: Pick<Dispatcher, 'dispatch'>
  readonly log: Logger
  /** Unix milliseconds. */
  readonly now: () => number
  /** A new random part of an id, letters and digits. */
  readonly makeId: () => string
}

/** Service of plain completions, without any knowledge of HTTP. */
export function createChatCompletions(options: ChatCompletionsOptions): ChatCompletions {
  return {
    async complete(call) {
      const read = await dispatch(options, call)
      return assemble(readAnswer(options, call, { ...read, includesUsage: true }), call)
    },
    async stream(call) {
      const read = await dispatch(options, call)
      return encode(
        readAnswer(options, call, { ...read, includesUsage: call.request.includesUsage }),
      )
    },
  }
}

/** An answer, and what reads it: of the nodes that were tried, the last. */
type ReadAnswer = { readonly answer: NodeAnswer; readonly chunks: NodeChunks }

async function dispatch(options: ChatCompletionsOptions, call: ChatCall): Promise<ReadAnswer> {
  let chunks = openChunks(options, call)
  const openReader = () => {
    chunks = openChunks(options, call)
    return chunks
  }
  try {
    const { accountId, body: request, signal } = call
    const { model } = call.request
    const answer = await options.dispatcher.dispatch({
      accountId,
      model,
      request,
      signal,
      openReader,
    })
    return { answer, chunks }
  } catch (error) {
    throw error instanceof DispatchError ? nodeCallErrorOf(error) : error
  }
}

/**
 * What judges a node's answer to the request of a caller at another gateway, where the chunks are
 * made that the caller gets.
 */
export function judgeAnswer(request: JsonObject): Pick<NodeChunks, 'push' | 'finish'> {
  const choicesAsked = memberOf(request, 'n')
  return createNodeChunks({
    identity: { id: '', created: 0, model: '' },
    choicesAsked: typeof choicesAsked === 'number' ? choicesAsked : 1,
  })
}

/** The caller's chunks, and in the end the usage where it is wanted. */
async function* readAnswer(
  options: ChatCompletionsOptions,
  call: ChatCall,
  { answer, chunks, includesUsage }: ReadAnswer & { readonly includesUsage: boolean },
): AsyncGenerator<ChunkBatch> {
  try {
    yield* answer.batches
  } catch (error) {
    throw callerErrorOf(options, call, { answer, error })
  } finally {
    const usage = usageOf(chunks, call)
    const { inputTokens } = tokensOf(usage)
    recordInference(() => tokensOf(usage))
    call.recordUsage(totalOf(usage), inputTokens)
  }
  if (includesUsage) yield { chunks: [chunks.usageChunk(usageOf(chunks, call))], bytes: 0 }
}

function usageOf(chunks: NodeChunks, { body }: ChatCall): JsonObject {
  return chunks.usage() ?? estimateUsage(body, chunks.textLength())
}

function tokensOf(usage: JsonObject): InferenceFacts {
  const [input, output] = [memberOf(usage, 'prompt_tokens'), memberOf(usage, 'completion_tokens')]
  return typeof input === 'number' && typeof output === 'number'
    ? { inputTokens: input, outputTokens: output }
    : {}
}

function totalOf(usage: JsonObject): number {
  const total = memberOf(usage, 'total_tokens')
  return typeof total === 'number' ? total : 0
}

function openChunks(
  { now, makeId }: ChatCompletionsOptions,
  { request, body }: ChatCall,
): NodeChunks {
  const choicesAsked = memberOf(body, 'n')
  return createNodeChunks({
    identity: {
      id: `chatcmpl-${makeId()}`,
      created: Math.floor(now() / 1000),
      model: request.model,
    },
    choicesAsked: typeof choicesAsked === 'number' ? choicesAsked : 1,
  })
}

/**
 * What is held for the caller until the end is counted as the frames that it came in, which are
 * larger.
 */
async function assemble(
  batches: AsyncIterable<ChunkBatch>,
  { reserve }: Pick<ChatCall, 'reserve'>,
): Promise<string> {
  const assembly = emptyAssembly()
  for await (const { chunks, bytes } of batches) {
    reserve(bytes)
    for (const chunk of chunks) addChunk(assembly, chunk)
  }
  return completionText(finishAssembly(assembly))
}

/** JSON text of a completion, with what every one of them has (interface, 2.2). */
export function completionText(completion: JsonObject): string {
  return JSON.stringify({ service_tier: null, system_fingerprint: null, ...completion })
}

async function* encode(batches: AsyncIterable<ChunkBatch>): AsyncGenerator<readonly string[]> {
  for await (const { chunks } of batches) yield chunks.map((chunk) => JSON.stringify(chunk))
}

/** The node's id is for the operator. What was wrong with its answer is said in words of ours. */
function callerErrorOf(
  { log }: ChatCompletionsOptions,
  { requestId }: ChatCall,
  { answer, error }: { readonly answer: NodeAnswer; readonly error: unknown },
): unknown {
  if (!(error instanceof DispatchError)) return error
  log.warn(
    { requestId, nodeId: answer.nodeId, code: error.code, fault: error.message },
    'answer broke off',
  )
  return nodeCallErrorOf(error)
}
