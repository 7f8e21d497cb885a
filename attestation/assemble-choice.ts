import {
  finishMembers,
  type MergedMembers,
  type MergedValue,
  mergeMember,
  mergeValue,
  replaceMember,
} from './assemble-members.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, setMember } from './json/value.ts'

/**
 * The completion that a stream's chunks amount to, as far as they have come. Belongs to one stream.
 */
export type Assembly = {
  readonly members: Map<string, Json>
  readonly choices: Map<number, ChoiceAssembly>
}

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

/**
 * Adds one chunk's part of a choice. checkChunk accepted the chunk; a member of another form than
 * it checks is left out.
 */
export function addChoice(assembly: ChoiceAssembly, choice: JsonObject): void {
  for (const [name, value] of Object.entries(choice)) {
    if (value === null || name === 'index' || (name === 'finish_reason' && value === '')) continue
    if (name === 'delta') addDelta(assembly, objectOf(value))
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

function addLogprobs(assembly: ChoiceAssembly, value: Json): void {
  for (const [name, member] of Object.entries(objectOf(value))) mergeMember(assembly.logprobs, name, member)
}

function addDelta(assembly: ChoiceAssembly, delta: JsonObject): void {
  const { message } = assembly
  for (const [name, value] of Object.entries(delta)) {
    if (value === null) continue
    if (name === 'role') replaceMember(message, name, value)
    else if (name === 'content') message.set(name, mergeContent(message.get(name), value))
    else if (name === 'function_call') addFunction(message, name, objectOf(value))
    else if (name === 'tool_calls') addToolCalls(assembly, value)
    else mergeMember(message, name, value)
  }
}

/** Text and parts are appended. Empty text beside parts is nothing. */
function mergeContent(known: MergedValue | undefined, value: Json): MergedValue {
  return value === '' && known !== undefined ? known : mergeValue(known, value)
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
  for (const item of isJsonArray(calls) ? calls : []) {
    const call = objectOf(item)
    if (typeof call.index !== 'number') continue
    const merged: MergedMembers = assembly.toolCalls.get(call.index) ?? new Map()
    for (const [name, value] of Object.entries(call)) {
      if (value === null || name === 'index') continue
      if (name === 'id' || name === 'type') replaceMember(merged, name, value)
      else if (name === 'function') addFunction(merged, name, objectOf(value))
      else mergeMember(merged, name, value)
    }
    assembly.toolCalls.set(call.index, merged)
    assembly.lastToolCall = Math.max(assembly.lastToolCall, call.index)
  }
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

function objectOf(value: Json): JsonObject {
  return isJsonObject(value) ? value : {}
}
