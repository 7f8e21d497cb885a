import {
  addChunk,
  emptyAssembly,
  finishAssembly,
} from '#attestation/dialects/chat/assemble-completion.ts'
import { type JsonObject, memberOf } from '#attestation/json/value.ts'
import type { ChunkBatch } from '../nodes/runs/chunk-queue.ts'
import type { Dispatcher, NodeAnswer } from '../nodes/runs/dispatch.ts'
import { DispatchError, nodeCallErrorOf } from '../nodes/runs/dispatch-error.ts'
import { type InferenceFacts, recordInference } from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import type { ChatRequest } from './chat-request.ts'
import { estimateUsage } from './chat-tokens.ts'
import { createNodeChunks, type NodeChunks } from './node-chunks.ts'

export type ChatCall = {
  readonly request: Pick<ChatRequest, 'model' | 'includesUsage'>
  /** The caller's request, as the node receives it. */
  readonly body: JsonObject
  readonly accountId: string
  readonly requestId: string
  /** Aborted with the error that the methods throw. */
  readonly signal: AbortSignal
  /**
   * Called once when a node's answer has ended or failed. `tokens`: all used tokens.
   * `promptTokens`: undefined if the node does not state it.
   */
  readonly recordUsage: (tokens: number, promptTokens: number | undefined) => void
  /**
   * Counts bytes that this call holds. Throws ApiError `overloaded` if all calls together hold too
   * much.
   */
  readonly reserve: (bytes: number) => void
}

/** Completions of contributed nodes. Both methods throw ApiError and the signal's reason. */
export type ChatCompletions = {
  /** Returns the JSON text of a completion with `usage` (interface 2.2). */
  complete(call: ChatCall): Promise<string>
  /**
   * Streams the JSON texts of the caller's chunks. Resolves when a node begins to answer. Each step
   * returns the chunks that arrived together. The iteration throws if the answer breaks off.
   * Leaving the iteration cancels the call.
   */
  stream(call: ChatCall): Promise<AsyncIterable<readonly string[]>>
}

type ChatCompletionsOptions = {
  /** Limits the time and the bytes of each answer. */
  readonly dispatcher: Pick<Dispatcher, 'dispatch'>
  readonly log: Logger
  /** Unix milliseconds. */
  readonly now: () => number
  /** A new random part for an id: letters and digits. */
  readonly makeId: () => string
}

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

/** The answer of the last tried node, with its reader. */
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

/** Checks a node's answer to a call of another gateway. That gateway makes the caller's chunks. */
export function judgeAnswer(request: JsonObject): Pick<NodeChunks, 'push' | 'finish'> {
  const identity = { id: '', created: 0, model: '' }
  return createNodeChunks({ identity, choicesAsked: choicesAskedIn(request) })
}

/** Yields the caller's chunks, with the usage at the end if the caller wants it. */
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
  const identity = {
    id: `chatcmpl-${makeId()}`,
    created: Math.floor(now() / 1000),
    model: request.model,
  }
  return createNodeChunks({ identity, choicesAsked: choicesAskedIn(body) })
}

function choicesAskedIn(request: JsonObject): number {
  const asked = memberOf(request, 'n')
  return typeof asked === 'number' ? asked : 1
}

/** Returns the completion as JSON text. Reserves the bytes of all frames, not only of the text. */
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

/** Adds the members that the interface requires (2.2). */
export function completionText(completion: JsonObject): string {
  return JSON.stringify({ service_tier: null, system_fingerprint: null, ...completion })
}

async function* encode(batches: AsyncIterable<ChunkBatch>): AsyncGenerator<readonly string[]> {
  for await (const { chunks } of batches) yield chunks.map((chunk) => JSON.stringify(chunk))
}

/** Only the operator may see the node's id, so the caller gets this gateway's message. */
export function callerErrorOf(
  { log }: Pick<ChatCompletionsOptions, 'log'>,
  { requestId }: Pick<ChatCall, 'requestId'>,
  { answer, error }: { readonly answer: NodeAnswer; readonly error: unknown },
): unknown {
  if (!(error instanceof DispatchError)) return error
  log.warn(
    { requestId, nodeId: answer.nodeId, code: error.code, fault: error.message },
    'answer broke off',
  )
  return nodeCallErrorOf(error)
}
