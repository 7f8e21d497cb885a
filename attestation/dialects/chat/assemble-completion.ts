import { isProofMember } from '../../completion-hash.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  setMember,
} from '../../json/value.ts'
import {
  type Assembly,
  type ChoiceAssembly,
  checkChunk,
  type MergedMembers,
  type MergedValue,
} from './check-chunk.ts'

/**
 * Assembles the chunks of a stream into a chat completion (interface 2.2), in the form of a record
 * (formats.md, Assembling a stream). Throws FormatError as checkChunk does.
 */
export function assembleCompletion(chunks: readonly JsonObject[]): JsonObject {
  const assembly = emptyAssembly()
  for (const chunk of chunks) addChunk(assembly, chunk)
  return finishAssembly(assembly)
}

export function emptyAssembly(): Assembly {
  return { members: new Map(), choices: new Map() }
}

/**
 * Adds one chunk, except its proof members. Changes `assembly` in place and returns it: copies
 * would take quadratic time. Throws FormatError as checkChunk does, before any change.
 */
export function addChunk(assembly: Assembly, chunk: JsonObject): Assembly {
  checkChunk(assembly, chunk)
  for (const [name, value] of Object.entries(chunk)) {
    if (name === 'choices') addChoices(assembly, value)
    else if (name !== 'object' && value !== null && !isProofMember(name))
      assembly.members.set(name, value)
  }
  return assembly
}

/**
 * Adds text to a choice that has text. The result is the same as with addChunk. Changes `assembly`
 * in place and returns it.
 */
export function addText(assembly: Assembly, index: number, text: string): Assembly {
  const message = assembly.choices.get(index)?.message
  const known = message?.get('content')
  if (message === undefined || typeof known !== 'string')
    throw new TypeError('expected a choice that has text')
  message.set('content', known + text)
  return assembly
}

/** The completion from all chunks so far. More chunks may be added to the assembly later. */
export function finishAssembly(assembly: Assembly): JsonObject {
  const completion: Record<string, Json> = { object: 'chat.completion' }
  for (const [name, value] of assembly.members) setMember(completion, name, value)
  const choices = [...assembly.choices.entries()].sort(([left], [right]) => left - right)
  completion.choices = choices.map(([index, choice]) => finishChoice(index, choice))
  return completion
}

/** Skips choices of a wrong form, because checkChunk refuses them. */
function addChoices(assembly: Assembly, choices: Json): void {
  for (const choice of isJsonArray(choices) ? choices : []) {
    if (!isJsonObject(choice) || typeof choice.index !== 'number') continue
    const known = assembly.choices.get(choice.index) ?? emptyChoice()
    assembly.choices.set(choice.index, known)
    addChoice(known, choice)
  }
}

function emptyChoice(): ChoiceAssembly {
  return {
    members: new Map(),
    message: new Map(),
    toolCalls: new Map(),
    logprobs: new Map(),
  }
}

/** Skips members of a wrong form, because checkChunk refuses them. */
function addChoice(assembly: ChoiceAssembly, choice: JsonObject): void {
  for (const [name, value] of Object.entries(choice)) {
    if (value === null || name === 'index' || (name === 'finish_reason' && value === '')) continue
    if (name === 'delta') addDelta(assembly, objectOf(value))
    else if (name === 'logprobs') addLogprobs(assembly, value)
    else assembly.members.set(name, value)
  }
}

function finishChoice(index: number, assembly: ChoiceAssembly): JsonObject {
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
  for (const [name, member] of Object.entries(objectOf(value)))
    mergeMember(assembly.logprobs, name, member)
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

/** Ignores an empty text that follows other content. */
function mergeContent(known: MergedValue | undefined, value: Json): MergedValue {
  return value === '' && known !== undefined ? known : mergeValue(known, value)
}

/** A provider sends a function's name in one piece, and its arguments in several pieces. */
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
    // Providers start every stream with empty content. If the message has a call or a refusal,
    // empty content means null.
    const isInstead =
      calls.length > 0 ||
      message.function_call !== undefined ||
      (refusal !== null && refusal !== '')
    message.content = isInstead ? null : ''
  }
  return message
}

function objectOf(value: Json): JsonObject {
  return isJsonObject(value) ? value : {}
}

/**
 * Adds one member of a chunk. Null adds nothing. Strings and arrays are appended. Objects are
 * merged member by member. Any other value, or a value of a new type, replaces the earlier value.
 */
function mergeMember(members: MergedMembers, name: string, value: Json): void {
  if (value !== null) members.set(name, mergeValue(members.get(name), value))
}

/**
 * Same as mergeMember, but a string that is not empty replaces the earlier string: providers send
 * names and ids whole.
 */
function replaceMember(members: MergedMembers, name: string, value: Json): void {
  if (typeof value !== 'string') mergeMember(members, name, value)
  else if (value !== '' || !members.has(name)) members.set(name, value)
}

function mergeValue(known: MergedValue | undefined, value: Json): MergedValue {
  if (typeof value === 'string') return typeof known === 'string' ? known + value : value
  if (isJsonArray(value)) return appendItems(Array.isArray(known) ? known : [], value)
  if (!isJsonObject(value)) return value
  const members = known instanceof Map ? known : new Map<string, MergedValue>()
  for (const [name, member] of Object.entries(value)) mergeMember(members, name, member)
  return members
}

/** A copy of the merged value as JSON. Chunks that are added later do not change it. */
function finishMerged(value: MergedValue): Json {
  if (value instanceof Map) return finishMembers(value)
  return Array.isArray(value) ? [...value] : value
}

function finishMembers(members: MergedMembers): Record<string, Json> {
  const object: Record<string, Json> = {}
  for (const [name, value] of members) setMember(object, name, finishMerged(value))
  return object
}

/**
 * Adds the items one by one, because a long array that is spread into arguments would overflow the
 * stack.
 */
function appendItems(known: Json[], items: readonly Json[]): Json[] {
  for (const item of items) known.push(item)
  return known
}
