import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../attestation/json/value.ts'
import {
  EventParser,
  EventTooLargeError,
  type ServerEvent,
} from '../../attestation/stream/event-parser.ts'
import { readReason } from '../../enclave/protocol/refusal.ts'
import { parseJson } from '../nodes/protocol/frames.ts'
import { BackendError, backendErrorOf } from './backend-error.ts'

/** One chunk of an answer, and its JSON text. */
export type AnswerChunk = { readonly chunk: JsonObject; readonly text: string }

/**
 * What comes next of an answer. `fault`: what ended it after these chunks; null when it goes on, or
 * ended as it should.
 */
type AnswerStep = {
  readonly chunks: readonly AnswerChunk[]
  readonly fault: BackendError | EventTooLargeError | null
}

/**
 * Gives the chunks of a backend's event stream out of its packets, the usage as the last one, alone
 * with `choices: []`: to gateways that know no end frame that chunk is the end, so none may follow
 * it. A backend that states no usage gives no such chunk. Belongs to one answer.
 */
export class AnswerParser {
  private readonly events = new EventParser({ eventBytesMax: EVENT_BYTES_MAX, errorLines: true })
  private readonly answer: Answer = {
    usage: null,
    open: new Set(),
    hasFinished: false,
    isEnded: false,
  }

  /** Whether the end mark came: what follows does not matter. */
  get isEnded(): boolean {
    return this.answer.isEnded
  }

  /**
   * The chunks that these bytes complete. Faults are an error in the stream, data that is not a
   * chunk, and an event over the limit; the chunks before them in the same packet are given first.
   */
  push(bytes: Uint8Array): AnswerStep {
    return this.take((events) => this.events.push(bytes, events))
  }

  /** The stream has ended: what is left. Faults as with `push`, and an answer that is not whole. */
  end(): AnswerStep {
    const { chunks, fault } = this.take((events) => this.events.end(events))
    const { usage } = this.answer
    if (fault !== null) return { chunks, fault }
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
  /** The usage chunk that will be last. */
  usage: JsonObject | null
  /** Indexes of the choices that began and have no finish_reason yet. */
  readonly open: Set<Json | undefined>
  hasFinished: boolean
  /** The end mark came. */
  isEnded: boolean
}

const END_MARK = '[DONE]'
const CHUNK = 'chat.completion.chunk'

/**
 * The chunk of an event, as the backend wrote it, without the usage; null when it has no choices.
 */
function takeEvent(data: string, answer: Answer): AnswerChunk | null {
  if (answer.isEnded) return null
  // Some send empty data to keep the connection.
  if (data.trim() === '') return null
  if (data.trim() === END_MARK) {
    answer.isEnded = true
    return null
  }
  const chunk = parseChunk(data)
  const usage = memberOf(chunk, 'usage')
  const isWithout = isJsonObject(usage) || memberOf(chunk, 'object') === CHUNK
  const choices = memberOf(chunk, 'choices') ?? (isWithout ? [] : null)
  if (isJsonObject(usage)) answer.usage = { ...chunk, choices: [], usage }
  if (!isJsonArray(choices))
    throw new BackendError('the backend sent something that is not a chunk')
  for (const choice of choices) addChoice(choice, answer)
  if (choices.length === 0) return null
  return isJsonObject(usage) ? encode({ ...chunk, usage: null }) : { chunk, text: data }
}

function encode(chunk: JsonObject): AnswerChunk {
  return { chunk, text: JSON.stringify(chunk) }
}

function addChoice(choice: Json, answer: Answer): void {
  if (!isJsonObject(choice))
    throw new BackendError('the backend sent a choice that is not an object')
  const index = memberOf(choice, 'index')
  const reason = memberOf(choice, 'finish_reason')
  if (typeof reason === 'string' && reason !== '') {
    answer.open.delete(index)
    answer.hasFinished = true
  } else answer.open.add(index)
}

/** Some servers leave out the end mark: then every choice must have ended. */
function isComplete({ isEnded, open, hasFinished }: Answer): boolean {
  return isEnded || (hasFinished && open.size === 0)
}

function parseChunk(data: string): JsonObject {
  const chunk = parseJson(data)
  if (!isJsonObject(chunk))
    throw new BackendError('the backend sent an event that is not a JSON object')
  const error = memberOf(chunk, 'error')
  if (error !== undefined && error !== null) throw backendErrorOf(readReason(chunk))
  // What llama.cpp puts into its `error` line is the error itself.
  if (!Object.hasOwn(chunk, 'choices') && typeof memberOf(chunk, 'message') === 'string')
    throw backendErrorOf(readReason(chunk))
  return chunk
}

/** Longest event of a backend's stream, bytes: what fits a frame to the gateway is far below. */
const EVENT_BYTES_MAX = 1024 * 1024
