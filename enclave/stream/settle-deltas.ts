import type { Assembly, ChoiceAssembly } from '../../attestation/check-chunk.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../../attestation/json/value.ts'

/**
 * The chunk (normalizeChunk's) with what readers take in two ways put in the one way that they all
 * take alike, where that changes nothing that was said: a tool call without index gets one, an id,
 * a call type or a function's name that is empty or was given before is left out, and text after
 * content parts becomes a part. `assembly` is of the chunks before, and `aliases` of this stream.
 * What is ambiguous even so, checkChunk refuses. Gives `chunk` itself when there is nothing to
 * settle.
 */
export function settleDeltas(
  assembly: Assembly,
  chunk: JsonObject,
  aliases: CallAliases = new Map(),
): JsonObject {
  const { choices } = chunk
  if (!isJsonArray(choices) || !choices.some(needsSettling(assembly))) return chunk
  return { ...chunk, choices: choices.map((choice) => settleChoice(assembly, choice, aliases)) }
}

/**
 * Index under which a call is given out, by choice and the index that the provider gave it, where
 * the two differ. Belongs to one stream. Changed in place.
 */
export type CallAliases = Map<string, number>

function needsSettling(assembly: Assembly): (choice: Json) => boolean {
  return (choice) => {
    const delta = isJsonObject(choice) ? choice.delta : null
    if (!isJsonObject(choice) || !isJsonObject(delta)) return false
    const hasCalls = (delta.tool_calls ?? null) !== null || (delta.function_call ?? null) !== null
    return hasCalls || (typeof delta.content === 'string' && hasParts(knownOf(assembly, choice)))
  }
}

function settleChoice(assembly: Assembly, choice: Json, aliases: CallAliases): Json {
  if (!isJsonObject(choice) || !isJsonObject(choice.delta)) return choice
  const known = knownOf(assembly, choice)
  const { content, tool_calls: calls, function_call: call } = choice.delta
  const placeOf = (index: number) => `${String(choice.index)} ${index}`
  const wraps = typeof content === 'string' && content !== '' && hasParts(known)
  const delta = {
    ...choice.delta,
    ...(wraps ? { content: [{ type: 'text', text: content }] } : {}),
    ...(isJsonArray(calls) ? { tool_calls: settleCalls(known, calls, { aliases, placeOf }) } : {}),
    ...(isJsonObject(call)
      ? { function_call: withoutKnown(call, known?.message.get('function_call')) }
      : {}),
  }
  return { ...choice, delta }
}

/**
 * Some providers leave the index out and send each call whole: then an id not seen before, or
 * without ids another name, opens a new one. One call may be told in several items of one chunk.
 */
function settleCalls(
  known: ChoiceAssembly | undefined,
  calls: readonly Json[],
  {
    aliases,
    placeOf,
  }: { readonly aliases: CallAliases; readonly placeOf: (index: number) => string },
): readonly Json[] {
  let last = known?.lastToolCall ?? -1
  const inChunk = new Map<number, ReadonlyMap<string, unknown>>()
  const knownOfCall = (index: number) => inChunk.get(index) ?? known?.toolCalls.get(index)

  function indexOf(call: JsonObject): Json {
    const given = call.index ?? null
    if (given === null) return indexFor(call, last, knownOfCall(last))
    if (typeof given !== 'number') return given
    const index = aliases.get(placeOf(given)) ?? given
    if (!isAnother(call, knownOfCall(index))) return index
    aliases.set(placeOf(given), last + 1)
    return last + 1
  }

  return calls.map((call) => {
    if (!isJsonObject(call)) return call
    const index = indexOf(call)
    if (typeof index !== 'number') return call
    const before = knownOfCall(index)
    const settled: JsonObject = {
      ...withoutKnown(call, before),
      index,
      ...(isJsonObject(call.function)
        ? { function: withoutKnown(call.function, before?.get('function')) }
        : {}),
    }
    last = Math.max(last, index)
    inChunk.set(index, merge(before, call))
    return settled
  })
}

/**
 * Whether a call that has the index of a known one is another one all the same: both have an id and
 * a name of their own. Gemini gives all calls of an answer the index 0.
 */
function isAnother(call: JsonObject, known: ReadonlyMap<string, unknown> | undefined): boolean {
  const { id } = call
  const knownId = known?.get('id') ?? ''
  if (
    known === undefined ||
    typeof id !== 'string' ||
    id === '' ||
    knownId === '' ||
    knownId === id
  )
    return false
  return namesFunction(call) && (nameIn(known) ?? '') !== ''
}

function namesFunction({ function: own }: JsonObject): boolean {
  return isJsonObject(own) && typeof own.name === 'string' && own.name !== ''
}

function indexFor(
  call: JsonObject,
  last: number,
  known: ReadonlyMap<string, unknown> | undefined,
): number {
  const { id } = call
  if (last < 0) return 0
  if (typeof id === 'string' && id !== '') return id === known?.get('id') ? last : last + 1
  // Gemini gives its calls neither index nor id. Who names a function begins a call.
  return namesFunction(call) && known !== undefined && (nameIn(known) ?? '') !== ''
    ? last + 1
    : last
}

/** The names that a call has after this chunk's part of it. */
function merge(before: unknown, call: JsonObject): ReadonlyMap<string, unknown> {
  const own = isJsonObject(call.function) ? call.function : {}
  const known = before instanceof Map ? before : new Map<string, unknown>()
  return new Map<string, unknown>([
    ['id', call.id || known.get('id')],
    ['type', call.type || known.get('type')],
    ['function', new Map([['name', own.name || nameIn(known)]])],
  ])
}

function nameIn(known: ReadonlyMap<string, unknown>): unknown {
  const own = known.get('function')
  return own instanceof Map ? own.get('name') : undefined
}

/** Members of a call, or of its function, that are given once. A repetition is left out. */
const GIVEN_ONCE = ['id', 'type', 'name'] as const

function withoutKnown(members: JsonObject, known: unknown): JsonObject {
  const repeated = GIVEN_ONCE.filter((name) => {
    const value = members[name]
    return (
      value === '' ||
      (typeof value === 'string' && known instanceof Map && known.get(name) === value)
    )
  })
  if (repeated.length === 0) return members
  return Object.fromEntries(
    Object.entries(members).filter(([name]) => !repeated.some((one) => one === name)),
  )
}

function hasParts(known: ChoiceAssembly | undefined): boolean {
  return Array.isArray(known?.message.get('content'))
}

function knownOf(assembly: Assembly, { index }: JsonObject): ChoiceAssembly | undefined {
  return typeof index === 'number' ? assembly.choices.get(index) : undefined
}
