import { FormatError } from '#attestation/errors.ts'
import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '#attestation/json/value.ts'
import type { NodeDialect } from '../protocol/dialects.ts'
import { parseJson } from '../protocol/frames.ts'
import { type ChunkFacts, stringLengths } from './read-chunk.ts'

/**
 * A chunk of an answer in a dialect other than chat: an event of a stream, or a piece of an
 * unstreamed answer. `event` may be empty. `data` and `body` are as the backend wrote them.
 */
type EventChunk =
  | { readonly event: string; readonly data: string; readonly usage: JsonObject | null }
  | { readonly body: string; readonly is_last: boolean; readonly usage: JsonObject | null }

const EVENT_NAME_LENGTH_MAX = 128

/**
 * Reads an attacker-controlled chunk. Null if it is not an EventChunk. No honest backend sends a
 * U+0000: JSON escapes it, and PostgreSQL cannot store it.
 */
export function readEventChunk(chunk: JsonObject): EventChunk | null {
  const { event, data, body, is_last, usage: claim } = chunk
  const usage = isJsonObject(claim) ? claim : null
  if (typeof body === 'string')
    return typeof is_last === 'boolean' && !body.includes('\0') ? { body, is_last, usage } : null
  return isEventName(event) && typeof data === 'string' && !/[\r\0]/.test(data)
    ? { event, data, usage }
    : null
}

export function isEventName(name: Json | undefined): name is string {
  return typeof name === 'string' && EVENT_NAME.test(name)
}

const EVENT_NAME = new RegExp(`^[\\w.-]{0,${EVENT_NAME_LENGTH_MAX}}$`)

/**
 * UTF-16 units. A longer body or event is not parsed, so that parsing costs no more than for a
 * frame, and brackets cannot become gigabytes of objects.
 */
const BODY_LENGTH_MAX = 1024 * 1024
/** Memory that a piece takes besides its text, in units. */
const PIECE_EXTRA = 32
/** The usage of a longer text is found in this many units at its end, where servers write it. */
const BODY_END_LENGTH = 4_096

export type EventFacts = {
  /** Null for a chunk that is refused. */
  read(chunk: JsonObject): ChunkFacts | null
  /** Drops the collected part of the body. From then on, only the body's end is kept. */
  dropBody(): void
}

/**
 * Finds the usage in events of any dialect, and names its members as chat completions do. If
 * `isWhole`, the answer must be a JSON object in pieces, and otherwise events. A body is read once,
 * at its end, so a piece after its last piece is refused.
 */
export function openEventFacts(dialect: NodeDialect, isWhole: boolean): EventFacts {
  let body = ''
  let room = BODY_LENGTH_MAX
  let isBodyBegun = false
  let isBodyEnded = false
  const stated: Record<string, Json> = {}

  function claimOf(value: JsonObject | null): JsonObject | undefined {
    const usage = value === null ? null : usageIn(value)
    if (usage === null) return undefined
    for (const name of COUNT_MEMBERS) {
      const count = memberOf(usage, name) ?? null
      // A false count stays false, but its value, which may be large, is not kept.
      if (count !== null) stated[name] = isCount(count) ? count : false
    }
    return countsOf(stated)
  }

  function dropBody(): void {
    body = ''
    room = -1
  }

  function readPiece(piece: string, isLast: boolean): ChunkFacts | null {
    if (isBodyEnded) return null
    isBodyEnded = isLast
    // A page or a stream is refused at once, so that another node can be asked.
    const start = isBodyBegun ? '{' : piece.trimStart().charAt(0)
    if (start !== '{' && start !== '') return null
    isBodyBegun = start === '{'
    room -= piece.length + PIECE_EXTRA
    body = room < 0 ? endOf(body + piece) : body + piece
    if (!isLast) return factsOf(piece.length, false, undefined)
    const value = room < 0 ? readEnd(body) : objectIn(body)
    body = ''
    return value === null ? null : factsOf(piece.length, true, claimOf(value))
  }

  return {
    read(given) {
      const chunk = readEventChunk(given)
      if (chunk === null || 'body' in chunk !== isWhole) return null
      if ('body' in chunk) return readPiece(chunk.body, chunk.is_last)
      if (isEmpty(dialect, chunk)) return factsOf(0, false, undefined)
      const data = dataIn(chunk.data)
      const textLength = data === null ? 0 : textLengthOf(data)
      const name = nameOf(chunk, data)
      const facts = factsOf(textLength, isLastEvent(name, chunk.data), claimOf(data))
      return { ...facts, isFailure: isFailure(name, data) }
    },
    dropBody,
  }
}

/** Copies the text, because a part of a text keeps the whole text in memory. */
export function endOf(text: string): string {
  return Buffer.from(text.slice(-BODY_END_LENGTH)).toString()
}

/**
 * Returns an object with the usage that the end of a JSON object states, or an empty object. Null
 * if no object ends there. A caller's schema can be repeated there, with a member `usage` that has
 * no counts.
 */
function readEnd(end: string): JsonObject | null {
  if (!end.trimEnd().endsWith('}')) return null
  const places = [...end.matchAll(USAGE)].slice(-USAGES_MAX)
  const usages = places.map(({ index }) => objectAt(end, end.indexOf('{', index)))
  const usage = usages.findLast((found) => COUNT_MEMBERS.some((name) => isCount(found?.[name])))
  return usage === undefined || usage === null ? {} : { usage }
}

/** Null if no complete object with at most OBJECTS_MAX objects begins at `start`. */
function objectAt(text: string, start: number): JsonObject | null {
  let close = start
  for (let tried = 0; tried < OBJECTS_MAX; tried++) {
    close = text.indexOf('}', close + 1)
    const object = close === -1 ? null : objectIn(text.slice(start, close + 1))
    if (object !== null || close === -1) return object
  }
  return null
}

/** A usage has a few objects with details. */
const OBJECTS_MAX = 16
/** A node chooses the text, so not all that could be a usage is tried. */
const USAGES_MAX = 16

/** The name of a member, not a part of a text, where each quote follows a backslash. */
const USAGE = /(?<!\\)"usage"\s*:\s*\{/g

/**
 * Returns the data of an event. Of data that is not parsed, only the type and the usage are found:
 * it repeats a long answer, or only its end is kept.
 */
function dataIn(text: string): JsonObject | null {
  const value = text.length > BODY_LENGTH_MAX ? null : objectIn(text)
  if (value !== null) return value
  const end = endOf(text)
  const found = readEnd(end)
  const type = TYPE_FIRST.exec(text)?.[1] ?? TYPE_LAST.exec(end)?.[1]
  return found === null || type === undefined ? found : { ...found, type }
}

/** The type as the first or the last member of the outermost object. */
const TYPE_FIRST = /^\s{0,9}\{\s{0,9}"type"\s{0,9}:\s{0,9}"([\w.-]{1,128})"/
const TYPE_LAST = /(?<!\\)"type"\s{0,9}:\s{0,9}"([\w.-]{1,128})"\s{0,9}\}\s{0,9}$/

/** Reads an answer's events, as AnswerReader (chat-run.ts) does, and collects facts. */
export type EventReader = {
  push(chunk: JsonObject): readonly JsonObject[]
  finish(): void
  /** The newest usage, cut to plausible counts. */
  usage(): JsonObject | null
  /** True after the last event or the last piece. */
  isEnded(): boolean
  /** True after an event with which the backend reported its failure. */
  isFailed(): boolean
  /** The newest `response`, and the number of the next event. Null before the first event. */
  soFar(): { readonly response: JsonObject; readonly sequence: number } | null
  textLength(): number
}

/**
 * `push` adds the missing name of an event, leaves out events without data, and changes nothing
 * else. `finish` throws FormatError if the last event is missing: a stream that is cut must not
 * look whole.
 */
export function createEventReader(dialect: NodeDialect): EventReader {
  let usage: JsonObject | null = null
  let isEnded = false
  let isFailed = false
  let textLength = 0
  let soFar: ReturnType<EventReader['soFar']> = null
  return {
    push(given) {
      const chunk = readEventChunk(given)
      if (chunk === null) throw new FormatError('other', 'expected an event')
      if (isEnded) return []
      usage = chunk.usage ?? usage
      if ('body' in chunk) {
        isEnded = chunk.is_last
        textLength += chunk.body.length
        return [given]
      }
      if (isEmpty(dialect, chunk)) return []
      const data = dataIn(chunk.data)
      const name = nameOf(chunk, data)
      // After an error in an event without a name, completions end with [DONE].
      isEnded =
        isLastEvent(name, chunk.data) || (dialect !== 'completions' && isFailure(name, data))
      textLength += chunk.data.length
      isFailed ||= isFailure(name, data)
      const { response, sequence_number: number } = data ?? {}
      if (isJsonObject(response) || soFar !== null)
        soFar = {
          response: isJsonObject(response) ? response : (soFar?.response ?? {}),
          sequence: isCount(number) ? number + 1 : (soFar?.sequence ?? 0) + 1,
        }
      return [name === chunk.event ? given : { ...given, event: name }]
    },
    finish() {
      if (!isEnded) throw new FormatError('other', 'expected the last event')
    },
    usage: () => usage,
    isEnded: () => isEnded,
    isFailed: () => isFailed,
    soFar: () => soFar,
    textLength: () => textLength,
  }
}

/**
 * The standard ignores an event without data. SDKs fail on its empty `data` line. `[DONE]` ends
 * completions alone.
 */
function isEmpty(dialect: NodeDialect, { data }: { readonly data: string }): boolean {
  return data.trim() === '' || (dialect !== 'completions' && data.trim() === END_MARK)
}

const END_MARK = '[DONE]'

/** Not in this list: streams of completions end with the data `[DONE]`. */
const LAST_EVENTS: ReadonlySet<string> = new Set([
  'response.completed',
  'response.failed',
  'response.incomplete',
  'message_stop',
  'error',
])

const FAILURE_EVENTS: ReadonlySet<string> = new Set(['response.failed', 'error'])

/** Streams of completions have no names of events: their data has a member `error`. */
function isFailure(event: string, data: JsonObject | null): boolean {
  return FAILURE_EVENTS.has(event) || isJsonObject(data?.error)
}

function isLastEvent(name: string, data: string): boolean {
  return LAST_EVENTS.has(name) || data === END_MARK
}

/** Some backends write no names of events, which Anthropic's SDKs need. The data has them too. */
function nameOf({ event }: { readonly event: string }, data: JsonObject | null): string {
  const { type = null } = data ?? {}
  return event === '' && isEventName(type) ? type : event
}

function factsOf(textLength: number, isLast: boolean, usage: JsonObject | undefined): ChunkFacts {
  const finished = isLast ? [0] : []
  return {
    textLength,
    isToken: textLength > 0 || isLast,
    finished,
    usage,
    isUsageOnly: false,
    isFailure: false,
  }
}

/** Returns the length of the text that an event adds to the answer, in any dialect. */
function textLengthOf({ delta, choices }: JsonObject): number {
  if (isJsonArray(choices))
    return choices.reduce<number>(
      (sum, choice) => sum + stringLengths(isJsonObject(choice) ? choice.text : undefined),
      0,
    )
  if (!isJsonObject(delta)) return stringLengths(delta)
  const { type: _, ...texts } = delta
  return stringLengths(texts)
}

function usageIn(value: JsonObject): JsonObject | null {
  for (const owner of [value, memberOf(value, 'response'), memberOf(value, 'message')]) {
    const usage: Json | undefined = isJsonObject(owner) ? memberOf(owner, 'usage') : undefined
    if (isJsonObject(usage)) return usage
  }
  return null
}

const INPUT_MEMBERS = [
  'prompt_tokens',
  'input_tokens',
  'cache_creation_input_tokens',
  'cache_read_input_tokens',
]

const COUNT_MEMBERS = [...INPUT_MEMBERS, 'completion_tokens', 'output_tokens']

function countsOf(usage: JsonObject): JsonObject {
  const inputs = INPUT_MEMBERS.map((name) => memberOf(usage, name)).filter(isCount)
  const output = memberOf(usage, 'completion_tokens') ?? memberOf(usage, 'output_tokens')
  return {
    prompt_tokens: inputs.reduce<number>((sum, count) => sum + count, 0),
    completion_tokens: output ?? 0,
  }
}

function objectIn(text: string): JsonObject | null {
  const value = parseJson(text)
  return isJsonObject(value) ? value : null
}
