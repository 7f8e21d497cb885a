import { type JsonObject, memberOf } from '#attestation/json/value.ts'
import type { StreamSoFar } from '../api/faces.ts'
import type { NodeDialect } from '../nodes/protocol/dialects.ts'
import type { ChunkBatch } from '../nodes/runs/chunk-queue.ts'
import type { Dispatcher, NodeAnswer } from '../nodes/runs/dispatch.ts'
import { DispatchError, nodeCallErrorOf } from '../nodes/runs/dispatch-error.ts'
import { createEventReader, type EventReader, readEventChunk } from '../nodes/runs/read-event.ts'
import { recordInference } from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import { type ChatCall, callerErrorOf } from './chat-completions.ts'
import { estimateTextTokens } from './chat-tokens.ts'

export type DialectCall = Omit<ChatCall, 'request' | 'body'> & {
  readonly dialect: NodeDialect
  readonly model: string
  /** The node's backend gets the request unchanged. */
  readonly request: JsonObject
  /** Estimate that is used if the answer states no usage. */
  readonly promptTokens: number
}

/** The methods throw the errors of ChatCompletions. */
export type DialectCalls = {
  /** The answer's text as the backend wrote it. */
  complete(call: DialectCall): Promise<string>
  /**
   * Streams the events as the backend wrote them. The node is asked at the first step. `soFar`
   * returns what the caller has received, so that an error event can continue the stream.
   * `isFailed` returns true if the events contain the backend's own error event.
   */
  stream(call: DialectCall): {
    readonly texts: AsyncIterable<{ readonly text: string; readonly isLast: boolean }>
    readonly soFar: () => StreamSoFar | null
    readonly isFailed: () => boolean
  }
}

type DialectCallsOptions = {
  readonly dispatcher: Pick<Dispatcher, 'dispatch'>
  readonly log: Logger
}

export function createDialectCalls(options: DialectCallsOptions): DialectCalls {
  return {
    async complete(call) {
      let text = ''
      for await (const { chunks, bytes } of readAnswer(options, call, trackReader(call))) {
        call.reserve(bytes)
        for (const chunk of chunks) text += textOf(chunk)
      }
      return text
    },
    stream(call) {
      const tracked = trackReader(call)
      return {
        texts: writeEvents(options, call, tracked),
        soFar: () => tracked.reader.soFar(),
        isFailed: () => tracked.reader.isFailed(),
      }
    },
  }
}

/** `reader` belongs to the node that is tried now. */
type Tracked = { reader: EventReader }

function trackReader({ dialect }: DialectCall): Tracked {
  return { reader: createEventReader(dialect) }
}

async function* writeEvents(
  options: DialectCallsOptions,
  call: DialectCall,
  tracked: Tracked,
): AsyncGenerator<{ readonly text: string; readonly isLast: boolean }> {
  for await (const { chunks } of readAnswer(options, call, tracked))
    yield { text: chunks.map(textOf).join(''), isLast: tracked.reader.isEnded() }
}

/** Returns a piece of the body, or an event. */
function textOf(given: JsonObject): string {
  const chunk = readEventChunk(given)
  if (chunk === null) return ''
  if ('body' in chunk) return chunk.body
  const name = chunk.event === '' ? '' : `event: ${chunk.event}\n`
  const lines = chunk.data.split('\n').map((line) => `data: ${line}\n`)
  return `${name}${lines.join('')}\n`
}

async function* readAnswer(
  options: DialectCallsOptions,
  call: DialectCall,
  tracked: Tracked,
): AsyncGenerator<ChunkBatch> {
  const answer = await dispatch(options, call, tracked)
  try {
    yield* answer.batches
  } catch (error) {
    throw callerErrorOf(options, call, { answer, error })
  } finally {
    recordUsage(call, tracked.reader)
  }
}

async function dispatch(
  { dispatcher }: DialectCallsOptions,
  { model, request, dialect, accountId, signal }: DialectCall,
  tracked: Tracked,
): Promise<NodeAnswer> {
  const openReader = () => {
    tracked.reader = createEventReader(dialect)
    return tracked.reader
  }
  try {
    return await dispatcher.dispatch({ accountId, model, request, dialect, signal, openReader })
  } catch (error) {
    throw error instanceof DispatchError ? nodeCallErrorOf(error) : error
  }
}

function recordUsage(call: DialectCall, reader: EventReader): void {
  const usage = reader.usage()
  const input = usage === null ? null : memberOf(usage, 'prompt_tokens')
  const output = usage === null ? null : memberOf(usage, 'completion_tokens')
  if (typeof input !== 'number' || typeof output !== 'number') {
    const answered = estimateTextTokens(reader.textLength())
    call.recordUsage(call.promptTokens + answered, call.promptTokens)
    return
  }
  recordInference(() => ({ inputTokens: input, outputTokens: output }))
  call.recordUsage(input + output, input)
}
