import { arrayOf, INDEX_MAX, invalidChunk, objectOf } from '../chunk-forms.ts'
import { FormatError } from '../errors.ts'
import { isCount, type Json, type JsonObject } from '../json/value.ts'

/** A tool call as far as its deltas have come. Its place in the list is its index for readers. */
export type ToolCall = {
  /** What the other side calls it. */
  readonly index: number | null
  readonly id: string | null
  readonly name: string | null
  /** Whether its first delta was given out. Before its name has come, the rest waits here. */
  readonly isBegun: boolean
  readonly waiting: {
    readonly text: string
    readonly members: JsonObject
    readonly own: JsonObject
  }
}

/** What a choice's calls need beside themselves. */
export type CallTerms = {
  /** Id of the call at this place, for one that comes without. */
  readonly makeId: (place: number) => string
  /** Text without a half character at its end, which waits for the next text of this path. */
  readonly join: (path: string, text: string) => string
  /** The members without those that were given before and do not add up. */
  readonly once: (path: string, members: JsonObject) => JsonObject
}

/**
 * Reads one delta's tool calls (attacker-controlled) and changes `calls`. They are numbered from 0
 * without gaps in the order in which they began, since readers fill arrays by these numbers; each
 * begins with id, type and name, and goes on without them. Null when nothing is to be given out.
 * Throws FormatError `invalid_chunk`, and `changed_name` for a second name of one call.
 */
export function readToolCalls(calls: ToolCall[], given: Json, terms: CallTerms): Json {
  const read = arrayOf(given, 'tool_calls').map((item) => readToolCall(calls, item, terms))
  const told = read.filter((call) => call !== null)
  return told.length === 0 ? null : told
}

function readToolCall(calls: ToolCall[], given: Json, terms: CallTerms): JsonObject | null {
  const { index, id, type, function: body, ...rest } = objectOf(given, 'each tool call')
  const { name, arguments: text, ...added } = objectOf(body ?? {}, 'the function of a tool call')
  const told = { index: readIndex(index), id: textOf(id, 'an id'), name: textOf(name, 'a name') }
  // Tools of other types cannot be asked for, and many readers break on calls of them.
  if ((textOf(type, 'the type of a tool call') ?? 'function') !== 'function')
    throw invalidChunk('expected tool calls of type function')
  const found = findCall(calls, told)
  const place = found < 0 ? calls.length : found
  if (place > INDEX_MAX) throw invalidChunk(`expected at most ${INDEX_MAX + 1} tool calls`)
  const before = calls[place] ?? { ...told, name: null, isBegun: false, waiting: NOTHING }
  if (before.name !== null && told.name !== null && told.name !== before.name)
    throw new FormatError('changed_name', 'expected the name of a call once')
  const path = `tool_calls ${place}`
  const pieces = before.waiting.text + terms.join(path, textOf(text, 'arguments') ?? '')
  const members = { ...before.waiting.members, ...terms.once(path, rest) }
  const own = { ...before.waiting.own, ...added }
  const call = { ...before, id: before.id ?? told.id, name: before.name ?? told.name }
  if (before.isBegun) {
    calls[place] = { ...call, id: before.id }
    return continueCall(place, members, pieces === '' ? own : { ...own, arguments: pieces })
  }
  const isBegun = call.name !== null
  const isWaitingTooLong =
    pieces.length > WAITING_LENGTH_MAX || Object.keys(members).length > WAITING_MEMBERS_MAX
  if (!isBegun && isWaitingTooLong)
    throw invalidChunk('expected the name of a call before its arguments')
  calls[place] = { ...call, isBegun, waiting: isBegun ? NOTHING : { text: pieces, members, own } }
  if (!isBegun) return null
  return {
    index: place,
    id: call.id ?? terms.makeId(place),
    type: 'function',
    ...members,
    function: { ...own, name: call.name, arguments: pieces },
  }
}

function continueCall(place: number, members: JsonObject, own: JsonObject): JsonObject | null {
  const isCalled = Object.keys(own).length > 0
  if (!isCalled && Object.keys(members).length === 0) return null
  return { index: place, ...members, ...(isCalled ? { function: own } : {}) }
}

/** Arguments that wait for the name of their call, UTF-16 units. */
const WAITING_LENGTH_MAX = 64 * 1024
const WAITING_MEMBERS_MAX = 64

const NOTHING = { text: '', members: {}, own: {} }

/**
 * Where the call that goes on stands in `calls`; -1 when another one begins. Some leave the index
 * out, or give every call the index 0: then an id, or without ids a name, begins a call. An id
 * alone begins none of a known index: some make a new one for each delta.
 */
function findCall(
  calls: readonly ToolCall[],
  { index, id, name }: Pick<ToolCall, 'index' | 'id' | 'name'>,
): number {
  const isSame = (call: ToolCall) => index === null || call.index === index
  const named = id === null ? -1 : calls.findLastIndex((call) => call.id === id && isSame(call))
  if (named >= 0) return named
  const place = index === null ? calls.length - 1 : calls.findLastIndex(isSame)
  const call = calls[place]
  if (call === undefined) return -1
  if (id !== null && call.id !== null && (index === null || (name !== null && call.name !== null)))
    return -1
  if (name === null || call.name === null) return place
  if (id === null ? index === null : name !== call.name) return -1
  return place
}

function readIndex(index: Json | undefined): number | null {
  if (index === undefined || index === null) return null
  if (!isCount(index))
    throw invalidChunk('expected the index of a tool call to be a whole number from 0')
  return index
}

function textOf(value: Json | undefined, what: string): string | null {
  if (value === undefined || value === null || value === '') return null
  if (typeof value !== 'string')
    throw new FormatError('changed_type', `expected ${what} to be a text`)
  return value
}
