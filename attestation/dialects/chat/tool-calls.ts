import { FormatError } from '../../errors.ts'
import {
  hasMembers,
  isCount,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
  setMember,
} from '../../json/value.ts'
import { arrayOf, INDEX_MAX, invalidChunk, objectOf } from './chunk-forms.ts'

/** The state of a tool call. Its position in the list of calls is the index that readers get. */
export type ToolCall = {
  /** The index that the provider sent. */
  readonly index: number | null
  readonly id: string | null
  readonly name: string | null
  /** True after the first delta was sent. Until then, deltas wait for the call's name. */
  readonly isBegun: boolean
  readonly waiting: readonly JsonObject[]
  /** Length of the JSON of the waiting deltas, UTF-16 units. */
  readonly waitingLength: number
}

export type CallTerms = {
  /** Creates the id of a call that has no id, from its position. */
  readonly makeId: (place: number) => string
  /** Keeps half a character at the end of a text, for the next text at the same path. */
  readonly join: (path: string, text: string) => string
  /** Leaves out repeated ids, names and numbers. Readers would append them. */
  readonly once: (path: string, members: JsonObject) => JsonObject
}

/**
 * Reads the tool calls in one delta (attacker-controlled) and changes `calls`. Readers fill arrays
 * by index, so calls are numbered from 0 without gaps, in the order in which they begin. Each call
 * begins with id, type and name, continues without these, and occurs once in a chunk. Throws
 * FormatError `invalid_chunk`, `changed_name` for a second name in one call, and `changed_type` for
 * a member that continues with another type.
 */
export function readToolCalls(
  calls: ToolCall[],
  given: Json,
  terms: CallTerms,
): readonly JsonObject[] {
  const read = new Map<number, Merged>()
  for (const item of arrayOf(given, 'tool_calls')) {
    const { place, deltas } = readToolCall(calls, item, terms)
    for (const delta of deltas)
      read.set(place, mergeInto(read.get(place) ?? { function: { arguments: '' } }, delta))
  }
  return [...read].map(([index, call]) => ({ index, ...call }))
}

/**
 * Reads the calls in the message of a whole answer (attacker-controlled) as readToolCalls reads
 * those of a stream, but without an index. Some servers write a call in both forms. Returns the
 * members that change. Throws FormatError as readToolCalls does, and `invalid_chunk` for a call
 * without a name.
 */
export function readWholeCalls(message: JsonObject, makeId: CallTerms['makeId']): JsonObject {
  const { tool_calls: calls = null, function_call: call = null } = message
  const read: Record<string, Json> = {}
  if (calls !== null)
    read.tool_calls = readWhole(arrayOf(calls, 'tool_calls'), makeId).map(withoutIndex)
  if (call !== null) {
    const body = objectOf(call, 'function_call')
    const isEmpty = (body.name ?? '') === '' && (body.arguments ?? '') === ''
    const [first] = isEmpty ? [] : readWhole([{ function: body }], makeId)
    read.function_call = first?.function ?? null
  }
  return read
}

/** The place is the index, because equal ids or indexes do not join the calls of a whole answer. */
function readWhole(items: readonly Json[], makeId: CallTerms['makeId']): readonly JsonObject[] {
  const terms: CallTerms = { makeId, join: (_, text) => text, once: (_, members) => members }
  const placed = items.map((item, index) => ({ ...objectOf(item, 'each tool call'), index }))
  const calls: ToolCall[] = []
  const read = readToolCalls(calls, placed, terms)
  if (calls.some(({ isBegun }) => !isBegun))
    throw invalidChunk('expected a tool call to have the name of its function')
  return read
}

export function withoutIndex({ index: _, ...others }: JsonObject): JsonObject {
  return others
}

function readToolCall(
  calls: ToolCall[],
  given: Json,
  terms: CallTerms,
): { readonly place: number; readonly deltas: readonly JsonObject[] } {
  const { index, id, type, function: body, ...rest } = objectOf(given, 'each tool call')
  const { name, arguments: stated, ...added } = objectOf(body ?? {}, 'the function of a tool call')
  const read = { index: readIndex(index), id: textOf(id, 'an id'), name: textOf(name, 'a name') }
  // Callers cannot request tools of other types, and many readers fail on such calls.
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

/** Merges a delta as readers do: they append texts. */
function mergeInto(whole: Merged, delta: JsonObject): Merged {
  for (const [name, value] of Object.entries(delta))
    setMember(whole, name, merged(whole, name, value))
  return whole
}

function merged(whole: Merged, name: string, value: Json): Json {
  const known = memberOf(whole, name)
  if (known === undefined) return isJsonObject(value) ? mergeInto({}, value) : value
  // `known` is our own copy, so it may be changed.
  if (isJsonObject(known) && isJsonObject(value)) return mergeInto(known as Merged, value)
  if (typeof known !== typeof value || typeof known === 'object')
    throw new FormatError('changed_type', 'expected a member of a call once, or as text')
  return typeof known === 'string' ? known + String(value) : value
}

/** Limits for deltas that wait for a call's name: their number, and UTF-16 units in all. */
const WAITING_MAX = 64
const WAITING_LENGTH_MAX = 64 * 1024

/**
 * Returns the position in `calls` of the continued call, or -1 for a new call. Without an index, a
 * new id begins a call. Without index and id, a new name begins a call. With an index, a new id
 * begins a call only if a name comes with it: some providers send index 0 for every call, and
 * others send a new id in each delta.
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
