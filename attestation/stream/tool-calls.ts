import { arrayOf, INDEX_MAX, invalidChunk, objectOf } from '../chunk-forms.ts'
import { FormatError } from '../errors.ts'
import {
  hasMembers,
  isCount,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
  setMember,
} from '../json/value.ts'

/** A tool call as far as its deltas have come. Its place in the list is its index for readers. */
export type ToolCall = {
  /** What the other side calls it. */
  readonly index: number | null
  readonly id: string | null
  readonly name: string | null
  /** Whether its first delta was given out. What came before its name waits for that. */
  readonly isBegun: boolean
  readonly waiting: readonly JsonObject[]
  /** Length of the JSON of what waits, UTF-16 units. */
  readonly waitingLength: number
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
 * begins with id, type and name, and goes on without them, once in a chunk. Null when nothing is to
 * be given out. Throws FormatError `invalid_chunk`, `changed_name` for a second name of one call,
 * and `changed_type` for a member that goes on as another type.
 */
export function readToolCalls(calls: ToolCall[], given: Json, terms: CallTerms): Json {
  const read = new Map<number, Merged>()
  for (const item of arrayOf(given, 'tool_calls')) {
    const { place, deltas } = readToolCall(calls, item, terms)
    for (const delta of deltas)
      read.set(place, mergeInto(read.get(place) ?? { function: { arguments: '' } }, delta))
  }
  return read.size === 0 ? null : [...read].map(([index, call]) => ({ index, ...call }))
}

/** The call's place, and what it adds there. */
function readToolCall(
  calls: ToolCall[],
  given: Json,
  terms: CallTerms,
): { readonly place: number; readonly deltas: readonly JsonObject[] } {
  const { index, id, type, function: body, ...rest } = objectOf(given, 'each tool call')
  const { name, arguments: stated, ...added } = objectOf(body ?? {}, 'the function of a tool call')
  const read = { index: readIndex(index), id: textOf(id, 'an id'), name: textOf(name, 'a name') }
  // Tools of other types cannot be asked for, and many readers break on calls of them.
  if ((textOf(type, 'the type of a tool call') ?? 'function') !== 'function')
    throw invalidChunk('expected tool calls of type function')
  const found = findCall(calls, read)
  const place = found < 0 ? calls.length : found
  if (place > INDEX_MAX) throw invalidChunk(`expected at most ${INDEX_MAX + 1} tool calls`)
  const before = calls[place] ?? {
    ...read,
    name: null,
    isBegun: false,
    waiting: [],
    waitingLength: 0,
  }
  if (before.name !== null && read.name !== null && read.name !== before.name)
    throw new FormatError('changed_name', 'expected the name of a call once')
  const path = `tool_calls ${place}`
  const text = terms.join(path, textOf(stated, 'arguments') ?? '')
  const own = {
    ...terms.once(`${path} function`, added),
    ...(text === '' ? {} : { arguments: text }),
  }
  const delta = { ...terms.once(path, rest), ...(hasMembers(own) ? { function: own } : {}) }
  const deltas = hasMembers(delta) ? [delta] : []
  const call = { ...before, id: before.id ?? read.id, name: before.name ?? read.name }
  if (before.isBegun) return { place, deltas }
  const waiting = [...before.waiting, ...deltas]
  if (call.name === null) {
    const waitingLength =
      before.waitingLength + (deltas.length > 0 ? JSON.stringify(deltas).length : 0)
    if (waiting.length > WAITING_MAX || waitingLength > WAITING_LENGTH_MAX)
      throw invalidChunk('expected the name of a call before its arguments')
    calls[place] = { ...call, waiting, waitingLength }
    return { place, deltas: [] }
  }
  if (calls[place - 1]?.isBegun === false)
    throw invalidChunk('expected tool calls to begin in their order')
  calls[place] = { ...call, isBegun: true, waiting: [] }
  const opening = { id: call.id ?? terms.makeId(place), type: 'function' }
  return { place, deltas: [opening, { function: { name: call.name } }, ...waiting] }
}

type Merged = Record<string, Json>

/** Adds a delta as readers do: texts and lists are appended, objects merged member by member. */
function mergeInto(whole: Merged, delta: JsonObject): Merged {
  for (const [name, value] of Object.entries(delta))
    setMember(whole, name, merged(whole, name, value))
  return whole
}

function merged(whole: Merged, name: string, value: Json): Json {
  const known = memberOf(whole, name)
  if (known === undefined) return isJsonObject(value) ? mergeInto({}, value) : value
  // What is known was made above.
  if (isJsonObject(known) && isJsonObject(value)) return mergeInto(known as Merged, value)
  if (typeof known !== typeof value || typeof known === 'object')
    throw new FormatError('changed_type', 'expected a member of a call once, or as text')
  return typeof known === 'string' ? known + String(value) : value
}

/** Deltas that wait for the name of their call, and the length of their JSON, UTF-16 units. */
const WAITING_MAX = 64
const WAITING_LENGTH_MAX = 64 * 1024

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
