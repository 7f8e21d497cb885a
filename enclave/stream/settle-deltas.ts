import type { Assembly, ChoiceAssembly } from '../../attestation/assemble-choice.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../attestation/json/value.ts'

/**
 * The chunk (normalizeChunk's) with what readers take in two ways put in the one way that they all
 * take alike, where that changes nothing that was said: a tool call without index gets one, an id,
 * a call type or a function's name that is empty or was given before is left out, and text after
 * content parts becomes a part. `assembly` is of the chunks before. What is ambiguous even so,
 * checkChunk refuses. Gives `chunk` itself when there is nothing to settle.
 */
export function settleDeltas(assembly: Assembly, chunk: JsonObject): JsonObject {
  const { choices } = chunk
  if (!isJsonArray(choices) || !choices.some(needsSettling(assembly))) return chunk
  return { ...chunk, choices: choices.map((choice) => settleChoice(assembly, choice)) }
}

function needsSettling(assembly: Assembly): (choice: Json) => boolean {
  return (choice) => {
    const delta = isJsonObject(choice) ? choice.delta : null
    if (!isJsonObject(choice) || !isJsonObject(delta)) return false
    const hasCalls = (delta.tool_calls ?? null) !== null || (delta.function_call ?? null) !== null
    return hasCalls || (typeof delta.content === 'string' && hasParts(knownOf(assembly, choice)))
  }
}

function settleChoice(assembly: Assembly, choice: Json): Json {
  if (!isJsonObject(choice) || !isJsonObject(choice.delta)) return choice
  const known = knownOf(assembly, choice)
  const { content, tool_calls: calls, function_call: call } = choice.delta
  const wraps = typeof content === 'string' && content !== '' && hasParts(known)
  const delta = {
    ...choice.delta,
    ...(wraps ? { content: [{ type: 'text', text: content }] } : {}),
    ...(isJsonArray(calls) ? { tool_calls: settleCalls(known, calls) } : {}),
    ...(isJsonObject(call) ? { function_call: withoutKnown(call, known?.message.get('function_call')) } : {}),
  }
  return { ...choice, delta }
}

/**
 * Some providers leave the index out and send each call whole: then an id not seen before, or
 * without ids another name, opens a new one. One call may be told in several items of one chunk.
 */
function settleCalls(known: ChoiceAssembly | undefined, calls: readonly Json[]): readonly Json[] {
  let last = known?.lastToolCall ?? -1
  const inChunk = new Map<number, ReadonlyMap<string, unknown>>()
  return calls.map((call) => {
    if (!isJsonObject(call)) return call
    const knownOfCall = (index: number) => inChunk.get(index) ?? known?.toolCalls.get(index)
    const index = call.index ?? indexFor(call, last, knownOfCall(last))
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

function indexFor(call: JsonObject, last: number, known: ReadonlyMap<string, unknown> | undefined): number {
  const { id, function: own } = call
  if (last < 0) return 0
  if (typeof id === 'string' && id !== '') return id === known?.get('id') ? last : last + 1
  // Gemini gives its calls neither index nor id. Who names a function begins a call.
  const isNamed = isJsonObject(own) && typeof own.name === 'string' && own.name !== ''
  return isNamed && known !== undefined && (nameIn(known) ?? '') !== '' ? last + 1 : last
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
    return value === '' || (typeof value === 'string' && known instanceof Map && known.get(name) === value)
  })
  if (repeated.length === 0) return members
  return Object.fromEntries(Object.entries(members).filter(([name]) => !repeated.some((one) => one === name)))
}

function hasParts(known: ChoiceAssembly | undefined): boolean {
  return Array.isArray(known?.message.get('content'))
}

function knownOf(assembly: Assembly, { index }: JsonObject): ChoiceAssembly | undefined {
  return typeof index === 'number' ? assembly.choices.get(index) : undefined
}
