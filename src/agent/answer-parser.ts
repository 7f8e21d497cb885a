import {
  EventParser,
  EventTooLargeError,
  type ServerEvent,
} from '#attestation/dialects/chat/event-parser.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '#attestation/json/value.ts'
import { readReason } from '#enclave/protocol/refusal.ts'
import { parseJson } from '../nodes/protocol/frames.ts'
import { BackendError, backendErrorOf, statesError } from './backend-error.ts'

/** `text`: the chunk's JSON text. */
export type AnswerChunk = { readonly chunk: JsonObject; readonly text: string }

/** `fault`: the error that ended the answer after these chunks. */
type AnswerStep = {
  readonly chunks: readonly AnswerChunk[]
  readonly fault: BackendError | EventTooLargeError | null
}

/**
 * Parses one answer of a backend. The usage chunk is returned last and alone, with `choices: []`,
 * because gateways without support for end frames treat this chunk as the end.
 */
export class AnswerParser {
  private readonly events = new EventParser({ eventBytesMax: EVENT_BYTES_MAX, errorLines: true })
  private readonly answer: Answer = {
    usage: null,
    open: new Set(),
    ended: new Set(),
    hasOther: false,
    isEnded: false,
  }

  /** True after the end mark. Everything after the mark is ignored. */
  get isEnded(): boolean {
    return this.answer.isEnded
  }

  /** Returns the complete chunks. `fault`: an error event, or a malformed or too long event. */
  push(bytes: Uint8Array): AnswerStep {
    return this.take((events) => this.events.push(bytes, events))
  }

  /** Call this when the stream has ended. `fault` is also set for an incomplete answer. */
  end(): AnswerStep {
    const { chunks, fault } = this.take((events) => this.events.end(events))
    const { usage, open, ended, hasOther } = this.answer
    if (fault !== null) return { chunks, fault }
    if (hasOther && open.size + ended.size === 0)
      return { chunks, fault: new BackendError('the backend sent something that is not a chunk') }
    if (!isComplete(this.answer))
      return { chunks, fault: new BackendError('the backend broke off') }
    return { chunks: usage === null ? chunks : [...chunks, encode(usage)], fault: null }
  }

  private take(readEvents: (events: ServerEvent[]) => void): AnswerStep {
    const events: ServerEvent[] = []
    const chunks: AnswerChunk[] = []
    const later = faultOf(() => readEvents(events))
    const fault = faultOf(() => {
      for (const { data } of events) {
        const chunk = takeEvent(data, this.answer)
        if (chunk !== null) chunks.push(chunk)
      }
    })
    return { chunks, fault: fault ?? later }
  }
}

function faultOf(run: () => void): AnswerStep['fault'] {
  try {
    run()
    return null
  } catch (error) {
    if (error instanceof BackendError || error instanceof EventTooLargeError) return error
    throw error
  }
}

type Answer = {
  /** The usage chunk is returned last. */
  usage: JsonObject | null
  /** Indexes of the choices that began but have no finish_reason yet. */
  readonly open: Set<Json>
  /** Indexes of the choices with a finish_reason. What follows does not begin them again. */
  readonly ended: Set<Json>
  /** True after an object that is not a chunk. */
  hasOther: boolean
  isEnded: boolean
}

const END_MARK = '[DONE]'
const CHUNK = 'chat.completion.chunk'

/** Returns the chunk without its usage. Null for a chunk without choices. */
function takeEvent(data: string, answer: Answer): AnswerChunk | null {
  if (answer.isEnded) return null
  // Some backends send empty data to keep the connection open.
  if (data.trim() === '') return null
  if (data.trim() === END_MARK) {
    answer.isEnded = true
    return null
  }
  const chunk = parseChunk(data)
  const usage = memberOf(chunk, 'usage')
  if (isJsonObject(usage)) answer.usage = { ...chunk, choices: [], usage }
  const choices = memberOf(chunk, 'choices') ?? null
  if (choices === null) {
    // Some backends send objects such as `{"type":"ping"}` to keep the connection open.
    answer.hasOther ||= !isJsonObject(usage) && memberOf(chunk, 'object') !== CHUNK
    return null
  }
  if (!isJsonArray(choices))
    throw new BackendError('the backend sent something that is not a chunk')
  for (const [position, choice] of choices.entries()) addChoice(choice, position, answer)
  if (choices.length === 0) return null
  return isJsonObject(usage) ? encode({ ...chunk, usage: null }) : { chunk, text: data }
}

function encode(chunk: JsonObject): AnswerChunk {
  return { chunk, text: JSON.stringify(chunk) }
}

/** A choice without index has its place in the chunk as its index. */
function addChoice(choice: Json, position: number, { open, ended }: Answer): void {
  if (!isJsonObject(choice))
    throw new BackendError('the backend sent a choice that is not an object')
  const index = memberOf(choice, 'index') ?? position
  const reason = memberOf(choice, 'finish_reason')
  if (typeof reason === 'string' && reason !== '') {
    open.delete(index)
    ended.add(index)
  } else if (!ended.has(index)) open.add(index)
}

/** Some servers send no end mark. Then the answer is complete when every choice has ended. */
function isComplete({ isEnded, open, ended }: Answer): boolean {
  return isEnded || (ended.size > 0 && open.size === 0)
}

function parseChunk(data: string): JsonObject {
  const chunk = parseJson(data)
  if (!isJsonObject(chunk))
    throw new BackendError('the backend sent an event that is not a JSON object')
  if (statesError(chunk, Object.hasOwn(chunk, 'choices'))) throw backendErrorOf(readReason(chunk))
  return chunk
}

/** No frame to the gateway can be longer. */
const EVENT_BYTES_MAX = 1024 * 1024
