import { FormatError } from '../../errors.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../json/value.ts'
import { arrayOf, indexOf, invalidChunk, objectOf } from './chunk-forms.ts'

/** The completion so far, from the chunks of one stream. */
export type Assembly = {
  readonly members: Map<string, Json>
  readonly choices: Map<number, ChoiceAssembly>
}

/** One choice, assembled from its chunks so far. Changed in place. */
export type ChoiceAssembly = {
  /** Last value of finish_reason, and of each unknown member. */
  readonly members: Map<string, Json>
  readonly message: MergedMembers
  readonly toolCalls: Map<number, MergedMembers>
  readonly logprobs: MergedMembers
}

/**
 * A JSON value that chunks are merged into. Its objects are maps. Maps and arrays are changed in
 * place.
 */
export type MergedValue = null | boolean | number | string | Json[] | MergedMembers

export type MergedMembers = Map<string, MergedValue>

/**
 * Checks that all readers of a stream understand its next chunk in the same way. `assembly` holds
 * the earlier chunks. Proof members are checked only for `__proto__`. The rules are in formats.md,
 * Assembling a stream. Throws FormatError:
 *
 * - `invalid_chunk`: a member does not have a chunk's form, or is called `__proto__`, or the chunk
 *   has a choice or a tool call twice;
 * - `changed_identity`: `id`, `created` or `model` differs from the first chunk;
 * - `changed_type`: a text continues as another type, or another type continues as text;
 * - `changed_name`: a tool call's `id` or a function's `name` occurs twice, even if the first is
 *   empty (some readers append the second, others replace the first), or an `id` comes after the
 *   `name`;
 * - `changed_finish`: the role, the call type or the reason for the end has changed;
 * - `unread_member`: a choice has a `message`, or a chunk has a member `chunk` or the type
 *   `content.delta`. Some readers use these members, some ignore them.
 *
 * Does not change `assembly`, so a refused chunk adds nothing.
 */
export function checkChunk(assembly: Assembly, chunk: JsonObject): void {
  if (memberOf(chunk, 'object') !== 'chat.completion.chunk')
    throw invalidChunk('expected object to be chat.completion.chunk')
  // Refuses null too: some readers only check whether the member exists.
  if (memberOf(chunk, 'error') !== undefined) throw invalidChunk('expected no error')
  // LangChain for Python skips a chunk of this type, and reads choices in a member `chunk`.
  if (memberOf(chunk, 'type') === 'content.delta' || isGiven(memberOf(chunk, 'chunk')))
    throw new FormatError('unread_member', 'expected no chunk that some readers skip or look into')
  checkNames(chunk)
  checkIdentity(assembly, chunk)
  const usage = memberOf(chunk, 'usage')
  if (isGiven(usage) && !isJsonObject(usage))
    throw invalidChunk('expected usage to be an object or null')
  const seen = new Set<number>()
  for (const item of arrayOf(memberOf(chunk, 'choices'), 'choices')) {
    const choice = objectOf(item, 'each choice')
    const index = indexOf(memberOf(choice, 'index'), 'a choice')
    if (seen.has(index)) throw invalidChunk('expected each choice once in a chunk')
    seen.add(index)
    checkChoice(assembly.choices.get(index), choice)
  }
}

/** In a reader that assigns members one by one, `__proto__` adds members that no one sent. */
function checkNames(value: Json): void {
  if (isJsonArray(value)) for (const item of value) checkNames(item)
  else if (isJsonObject(value)) {
    if (Object.hasOwn(value, '__proto__')) throw invalidChunk('expected no member called __proto__')
    for (const member of Object.values(value)) checkNames(member)
  }
}

const IDENTITY = { id: 'string', created: 'number', model: 'string' } as const

function checkIdentity(assembly: Assembly, chunk: JsonObject): void {
  for (const [name, type] of Object.entries(IDENTITY)) {
    const value = memberOf(chunk, name)
    if (value === undefined || kindOf(value) !== type)
      throw invalidChunk(`expected ${name} to be a ${type}`)
    const known = assembly.members.get(name)
    if (known !== undefined && known !== value)
      throw new FormatError('changed_identity', `expected ${name} as in the first chunk`)
  }
}

type KnownChoice = ChoiceAssembly | undefined

function checkChoice(known: KnownChoice, choice: JsonObject): void {
  if (isGiven(memberOf(choice, 'message')))
    throw new FormatError('unread_member', 'expected no message in a choice of a chunk')
  checkDelta(known, objectOf(memberOf(choice, 'delta'), 'delta'))
  const logprobs = memberOf(choice, 'logprobs')
  if (isGiven(logprobs)) {
    if (!isJsonObject(logprobs)) throw invalidChunk('expected logprobs to be an object or null')
    checkMembers(known?.logprobs, logprobs, 'logprobs')
  }
  const reason = memberOf(choice, 'finish_reason')
  if (isGiven(reason)) checkSame(known?.members.get('finish_reason'), reason, 'finish_reason')
}

function checkDelta(known: KnownChoice, delta: JsonObject): void {
  for (const [name, value] of Object.entries(delta)) {
    if (value === null) continue
    const before = known?.message.get(name)
    if (name === 'role') checkRole(before, value)
    else if (name === 'content') checkContent(before, value)
    else if (name === 'refusal') checkText(value, 'refusal')
    else if (name === 'function_call') checkFunction(before, value)
    else if (name === 'tool_calls') checkToolCalls(known, value)
    else checkMerged(before, value, `delta.${name}`)
  }
}

/** Refuses an empty role, because some readers treat it as a role without tool calls. */
function checkRole(before: MergedValue | undefined, value: Json): void {
  if (value === '') throw changed('expected role not to be empty')
  checkSame(before, value, 'role')
}

/** Content is text or content parts. Empty text is accepted with text and with parts. */
function checkContent(before: MergedValue | undefined, value: Json): void {
  if (typeof value !== 'string' && !isJsonArray(value))
    throw changed('expected content to be text, parts or null')
  if (value !== '' && before !== undefined && before !== '' && kindOf(before) !== kindOf(value))
    throw changed('expected content to go on as it began, as text or as parts')
}

function checkToolCalls(known: KnownChoice, calls: Json): void {
  const seen = new Set<number>()
  for (const item of arrayOf(calls, 'tool_calls')) {
    const call = objectOf(item, 'each tool call')
    const index = indexOf(memberOf(call, 'index'), 'a tool call')
    // Some readers make a call of each item, and lose the arguments of the second.
    if (seen.has(index)) throw invalidChunk('expected each tool call once in a chunk')
    seen.add(index)
    const before = known?.toolCalls.get(index)
    checkId(before, call)
    for (const [name, value] of Object.entries(call)) {
      if (value === null || name === 'index' || name === 'id') continue
      if (name === 'type') checkSame(before?.get('type'), value, 'the type of a tool call')
      else if (name === 'function') checkFunction(before?.get('function'), value)
      else checkMerged(before?.get(name), value, `tool_calls.${name}`)
    }
  }
}

/** An id must not follow the name: some readers create an id for a call with only a name. */
function checkId(before: MergedMembers | undefined, call: JsonObject): void {
  const id = memberOf(call, 'id')
  if (!isGiven(id)) return
  const known = before?.get('function')
  if (id !== '' && known instanceof Map && known.has('name'))
    throw new FormatError('changed_name', 'expected the id of a call before its name')
  checkOnce(before?.get('id'), id)
}

function checkFunction(before: MergedValue | undefined, value: Json): void {
  const members = before instanceof Map ? before : undefined
  for (const [name, member] of Object.entries(objectOf(value, 'a function'))) {
    if (member === null) continue
    if (name === 'name') checkOnce(members?.get('name'), member)
    else if (name === 'arguments') checkText(member, 'arguments')
    else checkMerged(members?.get(name), member, `function.${name}`)
  }
}

/**
 * Refuses a second text for a name or an id, even after an empty text: some readers would keep the
 * empty text as the name, and lose the rest of the call.
 */
function checkOnce(before: MergedValue | undefined, value: Json): void {
  if (typeof value !== 'string') throw changed('expected a name or id to be text')
  if (value !== '' && before !== undefined)
    throw new FormatError('changed_name', 'expected the name or id of a call once')
}

/** Refuses a second text that differs from the first. Empty texts do not count. */
function checkSame(before: Json | MergedValue | undefined, value: Json, what: string): void {
  if (typeof value !== 'string') throw changed(`expected ${what} to be text`)
  if (value !== '' && before !== undefined && before !== '' && before !== value)
    throw new FormatError('changed_finish', `expected ${what} to be the one given before`)
}

function checkText(value: Json, what: string): void {
  if (typeof value !== 'string') throw changed(`expected ${what} to be text`)
}

function checkMembers(before: MergedMembers | undefined, members: JsonObject, where: string): void {
  for (const [name, value] of Object.entries(members))
    if (value !== null) checkMerged(before?.get(name), value, `${where}.${name}`)
}

/** An unknown member keeps the type of its first value, at every depth. */
function checkMerged(before: MergedValue | undefined, value: Json, where: string): void {
  if (before !== undefined && before !== null && kindOf(before) !== kindOf(value))
    throw changed(`expected ${where} to go on in the type that it began with`)
  if (isJsonObject(value)) checkMembers(before instanceof Map ? before : undefined, value, where)
}

function kindOf(value: Json | MergedValue): string {
  if (Array.isArray(value)) return 'array'
  return value === null ? 'null' : typeof value
}

function isGiven(value: Json | undefined): value is Exclude<Json, null> {
  return value !== undefined && value !== null
}

function changed(message: string): FormatError {
  return new FormatError('changed_type', message)
}
