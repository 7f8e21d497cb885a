import { addChunk, emptyAssembly, finishAssembly } from '../../attestation/assemble-completion.ts'
import { FormatError } from '../../attestation/errors.ts'
import { type JsonObject, memberOf } from '../../attestation/json/value.ts'
import { ApiError } from '../errors.ts'
import type { Logger } from '../logger.ts'
import { DispatchError, type Dispatcher, type NodeAnswer } from '../nodes/dispatcher.ts'
import type { ChatRequest } from '../schemas/chat-request.ts'
import { callErrorOf } from './dispatch-refusals.ts'
import { createNodeChunks, type NodeChunks } from './node-answers/chunks.ts'
import { estimateUsage } from './node-answers/usage.ts'

/** A valid call for a plain completion. */
export type ChatCall = {
  readonly request: Pick<ChatRequest, 'model' | 'includesUsage'>
  /** The caller's request, as it goes to the node. */
  readonly body: JsonObject
  readonly accountId: string
  readonly requestId: string
  /** Aborted, with the error to throw, when the caller leaves or the gateway stops. */
  readonly signal: AbortSignal
  /** Told once, when the answer is over, however it ended, what it used in all, tokens; never when no node answered. */
  readonly noteUsage: (tokens: number) => void
  /** Counts bytes that are held for this call; throws ApiError `overloaded` when all calls hold too much. */
  readonly reserve: (bytes: number) => void
}

/** Plain completions, made by contributed nodes. Both methods throw ApiError and the signal's reason. */
export type ChatCompletions = {
  /** Makes a completion and gives its JSON text (interface 2.2). `usage` is always there. */
  complete(call: ChatCall): Promise<string>
  /**
   * The same, streamed, as the JSON texts of the caller's chunks, some at a time; resolves when a node has begun to
   * answer. The iteration throws when the answer broke off, and else ends after its last chunk. Leaving it cancels the call.
   */
  stream(call: ChatCall): Promise<AsyncIterable<readonly string[]>>
}

export type ChatCompletionsOptions = {
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
      const answer = await dispatch(options, call)
      return assemble(readAnswer(options, call, { answer, includesUsage: true }), call)
    },
    async stream(call) {
      const answer = await dispatch(options, call)
      return encode(readAnswer(options, call, { answer, includesUsage: call.request.includesUsage }))
    },
  }
}

async function dispatch({ dispatcher }: ChatCompletionsOptions, call: ChatCall): Promise<NodeAnswer> {
  try {
    const { accountId, body: request, signal } = call
    return await dispatcher.dispatch({ accountId, model: call.request.model, request, signal })
  } catch (error) {
    throw error instanceof DispatchError ? callErrorOf(error) : error
  }
}

/** The caller's chunks, those that came together given together; none twice, none without meaning. */
async function* readAnswer(
  options: ChatCompletionsOptions,
  call: ChatCall,
  { answer, includesUsage }: { readonly answer: NodeAnswer; readonly includesUsage: boolean },
): AsyncGenerator<readonly JsonObject[]> {
  const chunks = openChunks(options, call)
  try {
    for await (const chunk of answer.chunks) {
      const read = chunks.push(chunk)
      if (read.length > 0) yield read
    }
    chunks.finish()
  } catch (error) {
    throw toldError(options, call, { answer, error })
  } finally {
    call.noteUsage(totalOf(usageOf(chunks, call)))
  }
  if (includesUsage) yield [chunks.usageChunk(usageOf(chunks, call))]
}

function usageOf(chunks: NodeChunks, { body }: ChatCall): JsonObject {
  return chunks.usage() ?? estimateUsage(body, chunks.textLength())
}

function totalOf(usage: JsonObject): number {
  const total = memberOf(usage, 'total_tokens')
  return typeof total === 'number' ? total : 0
}

function openChunks({ now, makeId }: ChatCompletionsOptions, { request, body }: ChatCall): NodeChunks {
  const choicesAsked = memberOf(body, 'n')
  return createNodeChunks({
    identity: {
      id: `chatcmpl-${makeId()}`,
      created: Math.floor(now() / 1000),
      model: request.model,
    },
    choicesAsked: typeof choicesAsked === 'number' ? choicesAsked : 1,
    makeCallId: () => `call_${makeId()}`,
  })
}

/** What is held for the caller until the end is counted, chunk by chunk. */
async function assemble(
  read: AsyncIterable<readonly JsonObject[]>,
  { reserve }: Pick<ChatCall, 'reserve'>,
): Promise<string> {
  const assembly = emptyAssembly()
  for await (const chunks of read)
    for (const chunk of chunks) {
      reserve(JSON.stringify(chunk).length)
      addChunk(assembly, chunk)
    }
  return completionText(finishAssembly(assembly))
}

/** JSON text of a completion, with what every one of them has (interface, 2.2). */
export function completionText(completion: JsonObject): string {
  return JSON.stringify({ service_tier: null, system_fingerprint: null, ...completion })
}

async function* encode(read: AsyncIterable<readonly JsonObject[]>): AsyncGenerator<readonly string[]> {
  for await (const chunks of read) yield chunks.map((chunk) => JSON.stringify(chunk))
}

/** The node's id is for the operator; what was wrong is said in words of ours. */
function toldError(
  { log }: ChatCompletionsOptions,
  { requestId }: ChatCall,
  { answer, error }: { readonly answer: NodeAnswer; readonly error: unknown },
): unknown {
  if (error instanceof DispatchError) return callErrorOf(error)
  if (!(error instanceof FormatError)) return error
  log.warn({ requestId, nodeId: answer.nodeId, fault: error.message }, 'node sent what is no answer')
  return new ApiError('node_error', 'The node sent something that is no answer')
}
