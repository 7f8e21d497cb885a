import {
  finishMembers,
  type MergedMembers,
  type MergedValue,
  mergeMember,
  mergeValue,
  replaceMember,
} from './assemble-members.ts'
import { FormatError } from './errors.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, setMember } from './json/value.ts'

/** One choice, as far as its chunks have come. Changed in place. */
export type ChoiceAssembly = {
  /** finish_reason and members unknown here: the last value. */
  readonly members: Map<string, Json>
  readonly message: MergedMembers
  readonly toolCalls: Map<number, MergedMembers>
  /** Highest index among the tool calls; -1 when there is none. */
  lastToolCall: number
  readonly logprobs: MergedMembers
}

/** A choice that no chunk was added to. */
export function emptyChoice(): ChoiceAssembly {
  return {
    members: new Map(),
    message: new Map(),
    toolCalls: new Map(),
    lastToolCall: -1,
    logprobs: new Map(),
  }
}

/** Adds one chunk's part of a choice. Throws FormatError `invalid_chunk`. */
export function addChoice(assembly: ChoiceAssembly, choice: JsonObject): void {
  for (const [name, value] of Object.entries(choice)) {
    if (value === null || RESERVED.has(name)) continue
    if (name === 'delta') addDelta(assembly, objectOf(value, 'delta'))
    else if (name === 'logprobs') addLogprobs(assembly, value)
    else assembly.members.set(name, value)
  }
}

/** The choice of a chat completion (interface 2.2). */
export function finishChoice(index: number, assembly: ChoiceAssembly): JsonObject {
  const choice: Record<string, Json> = { finish_reason: null }
  for (const [name, value] of assembly.members) setMember(choice, name, value)
  choice.index = index
  choice.message = finishMessage(assembly)
  choice.logprobs =
    assembly.logprobs.size === 0
      ? null
      : { content: null, refusal: null, ...finishMembers(assembly.logprobs) }
  return choice
}

/** Members of a chunk's choice that would take the place of what is assembled. */
const RESERVED: ReadonlySet<string> = new Set(['index', 'message'])

function addLogprobs(assembly: ChoiceAssembly, value: Json): void {
  for (const [name, member] of Object.entries(objectOf(value, 'logprobs')))
    mergeMember(assembly.logprobs, name, member)
}

function addDelta(assembly: ChoiceAssembly, delta: JsonObject): void {
  const { message } = assembly
  for (const [name, value] of Object.entries(delta)) {
    if (value === null) continue
    if (name === 'role') replaceMember(message, name, value)
    else if (name === 'content') message.set(name, mergeContent(message.get(name), value))
    else if (name === 'function_call') addFunction(message, name, objectOf(value, 'function_call'))
    else if (name === 'tool_calls') addToolCalls(assembly, value)
    else mergeMember(message, name, value)
  }
}

/** Text is appended. Models that also stream content parts may mix both: then each becomes a part in its turn. */
function mergeContent(known: MergedValue | undefined, value: Json): MergedValue {
  if (typeof value === 'string' && Array.isArray(known)) return appendText(known, value)
  if (isJsonArray(value) && typeof known === 'string' && known !== '')
    return mergeValue([{ type: 'text', text: known }], value)
  return mergeValue(known, value)
}

function appendText(parts: Json[], text: string): Json[] {
  const last = parts.at(-1)
  if (text === '') return parts
  if (isJsonObject(last) && last.type === 'text' && typeof last.text === 'string')
    parts[parts.length - 1] = { ...last, text: last.text + text }
  else parts.push({ type: 'text', text })
  return parts
}

/** A function's name is sent whole, its arguments piece by piece. */
function addFunction(owner: MergedMembers, name: string, call: JsonObject): void {
  const known = owner.get(name)
  const merged: MergedMembers = known instanceof Map ? known : new Map([['arguments', '']])
  for (const [member, value] of Object.entries(call)) {
    if (member === 'name') replaceMember(merged, member, value)
    else mergeMember(merged, member, value)
  }
  owner.set(name, merged)
}

function addToolCalls(assembly: ChoiceAssembly, calls: Json): void {
  if (!isJsonArray(calls)) throw new FormatError('invalid_chunk', 'expected tool_calls to be an array')
  for (const item of calls) {
    const call = objectOf(item, 'each tool call')
    const index = toolCallIndex(assembly, call)
    const merged: MergedMembers = assembly.toolCalls.get(index) ?? new Map()
    for (const [name, value] of Object.entries(call)) {
      if (value === null || name === 'index') continue
      if (name === 'id' || name === 'type') replaceMember(merged, name, value)
      else if (name === 'function') addFunction(merged, name, objectOf(value, 'function'))
      else mergeMember(merged, name, value)
    }
    assembly.toolCalls.set(index, merged)
    assembly.lastToolCall = Math.max(assembly.lastToolCall, index)
  }
}

/** Some providers leave the index out and send each call whole: then an id not seen before opens a new one. */
function toolCallIndex(assembly: ChoiceAssembly, call: JsonObject): number {
  const { index, id } = call
  if (index === undefined || index === null) {
    const last = assembly.lastToolCall
    const isNew =
      last < 0 || (typeof id === 'string' && id !== '' && assembly.toolCalls.get(last)?.get('id') !== id)
    return isNew ? last + 1 : last
  }
  if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0)
    throw new FormatError('invalid_chunk', 'expected the index of a tool call to be a whole number from 0')
  return index
}

function finishMessage(assembly: ChoiceAssembly): JsonObject {
  const message = finishMembers(assembly.message)
  const calls = [...assembly.toolCalls.entries()].sort(([left], [right]) => left - right)
  if (calls.length > 0) message.tool_calls = calls.map(([, call]) => finishMembers(call))
  if (message.role === undefined || message.role === '') message.role = 'assistant'
  message.refusal ??= null
  message.audio ??= null
  const { content, refusal } = message
  if (content === undefined || content === '') {
    // Providers open every stream with empty content; beside a call or a refusal it stands for none.
    const isInstead =
      calls.length > 0 || message.function_call !== undefined || (refusal !== null && refusal !== '')
    message.content = isInstead ? null : ''
  }
  return message
}

function objectOf(value: Json, what: string): JsonObject {
  if (!isJsonObject(value)) throw new FormatError('invalid_chunk', `expected ${what} to be an object`)
  return value
}
