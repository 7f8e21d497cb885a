import {
  type Assembly,
  type ChoiceAssembly,
  checkChunk,
  type MergedMembers,
  type MergedValue,
} from './check-chunk.ts'
import { isProofMember } from './completion-hash.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, setMember } from './json/value.ts'

/**
 * The chat completion (interface 2.2) that a stream's chunks amount to: what a record of the stream
 * holds, and what a caller who kept the chunks recomputes the hash from. Only chunks that every
 * reader makes the same of amount to one. formats.md, Assembling a stream, has the rules. Throws
 * FormatError as checkChunk.
 */
export function assembleCompletion(chunks: readonly JsonObject[]): JsonObject {
  const assembly = emptyAssembly()
  for (const chunk of chunks) addChunk(assembly, chunk)
  return finishAssembly(assembly)
}

/** An assembly that no chunk was added to. */
export function emptyAssembly(): Assembly {
  return { members: new Map(), choices: new Map() }
}

/**
 * Adds one chunk and gives the same assembly. It is changed in place: a copy for each chunk would
 * make a long stream with logprobs quadratic. Proof members are left out. Throws FormatError as
 * checkChunk, and then has added nothing.
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
 * Adds text to the content of a choice that has text, and gives the same assembly: as addChunk of a
 * chunk that says no more, and that is otherwise like the chunk before.
 */
export function addText(assembly: Assembly, index: number, text: string): Assembly {
  const message = assembly.choices.get(index)?.message
  const known = message?.get('content')
  if (message === undefined || typeof known !== 'string')
    throw new TypeError('expected a choice that has text')
  message.set('content', known + text)
  return assembly
}

/** The completion as far as chunks were added. The assembly may go on after it. */
export function finishAssembly(assembly: Assembly): JsonObject {
  const completion: Record<string, Json> = { object: 'chat.completion' }
  for (const [name, value] of assembly.members) setMember(completion, name, value)
  const choices = [...assembly.choices.entries()].sort(([left], [right]) => left - right)
  completion.choices = choices.map(([index, choice]) => finishChoice(index, choice))
  return completion
}

/** The form of `choices` was checked; what is not of it is not there. */
function addChoices(assembly: Assembly, choices: Json): void {
  for (const choice of isJsonArray(choices) ? choices : []) {
    if (!isJsonObject(choice) || typeof choice.index !== 'number') continue
    const known = assembly.choices.get(choice.index) ?? emptyChoice()
    assembly.choices.set(choice.index, known)
    addChoice(known, choice)
  }
}

/** A choice that no chunk was added to. */
function emptyChoice(): ChoiceAssembly {
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
function addChoice(assembly: ChoiceAssembly, choice: JsonObject): void {
  for (const [name, value] of Object.entries(choice)) {
    if (value === null || name === 'index' || (name === 'finish_reason' && value === '')) continue
    if (name === 'delta') addDelta(assembly, objectOf(value))
    else if (name === 'logprobs') addLogprobs(assembly, value)
    else assembly.members.set(name, value)
  }
}

/** The choice of a chat completion (interface 2.2). */
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
    // Providers open every stream with empty content; beside a call or a refusal it stands for
    // none.
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
 * Adds one chunk's member: null adds nothing, strings and arrays are appended, objects merged
 * member by member by these same rules, and anything else, also a value of another type than
 * before, replaces what was there.
 */
function mergeMember(members: MergedMembers, name: string, value: Json): void {
  if (value !== null) members.set(name, mergeValue(members.get(name), value))
}

/**
 * As mergeMember, but a string replaces the one before unless it is empty: for names and ids, sent
 * whole.
 */
function replaceMember(members: MergedMembers, name: string, value: Json): void {
  if (typeof value !== 'string') mergeMember(members, name, value)
  else if (value !== '' || !members.has(name)) members.set(name, value)
}

/** `known` with `value` added, by the rules of mergeMember. */
function mergeValue(known: MergedValue | undefined, value: Json): MergedValue {
  if (typeof value === 'string') return typeof known === 'string' ? known + value : value
  if (isJsonArray(value)) return appendItems(Array.isArray(known) ? known : [], value)
  if (!isJsonObject(value)) return value
  const members = known instanceof Map ? known : new Map<string, MergedValue>()
  for (const [name, member] of Object.entries(value)) mergeMember(members, name, member)
  return members
}

/** What was merged, as JSON of its own: adding more chunks does not change it. */
function finishMerged(value: MergedValue): Json {
  if (value instanceof Map) return finishMembers(value)
  return Array.isArray(value) ? [...value] : value
}

/** The same for members. */
function finishMembers(members: MergedMembers): Record<string, Json> {
  const object: Record<string, Json> = {}
  for (const [name, value] of members) setMember(object, name, finishMerged(value))
  return object
}

/**
 * Adds items one by one: spreading an attacker's long array into arguments would overflow the
 * stack.
 */
function appendItems(known: Json[], items: readonly Json[]): Json[] {
  for (const item of items) known.push(item)
  return known
}
