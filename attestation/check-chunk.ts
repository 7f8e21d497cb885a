import type { Assembly, ChoiceAssembly } from './assemble-choice.ts'
import type { MergedMembers, MergedValue } from './assemble-members.ts'
import { FormatError } from './errors.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'

/**
 * Checks that every reader of a stream makes the same of its next chunk, given `assembly` of the
 * chunks before. Proof members are not looked at. README.md, Unambiguous streams, has the rules.
 * Throws FormatError:
 *
 * - `invalid_chunk`: a member has another form than a chunk's has;
 * - `changed_identity`: `id`, `created` or `model` is not that of the first chunk;
 * - `changed_type`: text goes on as another type, or the other way round;
 * - `changed_name`: a tool call's `id` or a function's `name` is given a second time, which some
 *   readers append and some put in place of the first;
 * - `changed_finish`: another role, call type or reason for the end than before;
 * - `unread_member`: a choice has a `message`, which some readers show and some do not.
 *
 * Changes nothing, so that a chunk that is refused is no part of the assembly.
 */
export function checkChunk(assembly: Assembly, chunk: JsonObject): void {
  if (memberOf(chunk, 'object') !== 'chat.completion.chunk')
    throw invalid('expected object to be chat.completion.chunk')
  if (isGiven(memberOf(chunk, 'error'))) throw invalid('expected no error')
  checkIdentity(assembly, chunk)
  const usage = memberOf(chunk, 'usage')
  if (isGiven(usage) && !isJsonObject(usage)) throw invalid('expected usage to be an object or null')
  const choices = memberOf(chunk, 'choices')
  if (!isJsonArray(choices)) throw invalid('expected choices to be an array')
  const seen = new Set<number>()
  for (const choice of choices) {
    if (!isJsonObject(choice)) throw invalid('expected each choice to be an object')
    const index = indexOf(choice, 'a choice')
    if (seen.has(index)) throw invalid('expected each choice once in a chunk')
    seen.add(index)
    checkChoice(assembly.choices.get(index), choice)
  }
}

const IDENTITY = { id: 'string', created: 'number', model: 'string' } as const

function checkIdentity(assembly: Assembly, chunk: JsonObject): void {
  for (const [name, type] of Object.entries(IDENTITY)) {
    const value = memberOf(chunk, name)
    if (value === undefined || kindOf(value) !== type) throw invalid(`expected ${name} to be a ${type}`)
    const known = assembly.members.get(name)
    if (known !== undefined && known !== value)
      throw new FormatError('changed_identity', `expected ${name} to be the one of the first chunk`)
  }
}

type KnownChoice = ChoiceAssembly | undefined

function checkChoice(known: KnownChoice, choice: JsonObject): void {
  if (isGiven(memberOf(choice, 'message')))
    throw new FormatError('unread_member', 'expected no message in a choice of a chunk')
  const delta = memberOf(choice, 'delta')
  if (!isJsonObject(delta)) throw invalid('expected delta to be an object')
  checkDelta(known, delta)
  const logprobs = memberOf(choice, 'logprobs')
  if (isGiven(logprobs)) {
    if (!isJsonObject(logprobs)) throw invalid('expected logprobs to be an object or null')
    checkMembers(known?.logprobs, logprobs, 'logprobs')
  }
  const reason = memberOf(choice, 'finish_reason')
  if (isGiven(reason)) checkSame(known?.members.get('finish_reason'), reason, 'finish_reason')
}

function checkDelta(known: KnownChoice, delta: JsonObject): void {
  for (const [name, value] of Object.entries(delta)) {
    if (value === null) continue
    const before = known?.message.get(name)
    if (name === 'role') checkSame(before, value, 'role')
    else if (name === 'content') checkContent(before, value)
    else if (name === 'refusal') checkText(value, 'refusal')
    else if (name === 'function_call') checkFunction(before, value, 'function_call')
    else if (name === 'tool_calls') checkToolCalls(known, value)
    else checkMerged(before, value, `delta.${name}`)
  }
}

/** Text or content parts. Empty text may stand beside both, because it shows nothing. */
function checkContent(before: MergedValue | undefined, value: Json): void {
  if (typeof value !== 'string' && !isJsonArray(value))
    throw changed('expected content to be text, parts or null')
  if (value !== '' && before !== undefined && before !== '' && kindOf(before) !== kindOf(value))
    throw changed('expected content to go on as it began, as text or as parts')
}

function checkToolCalls(known: KnownChoice, calls: Json): void {
  if (!isJsonArray(calls)) throw invalid('expected tool_calls to be an array')
  const given = new Set<string>()
  for (const call of calls) {
    if (!isJsonObject(call)) throw invalid('expected each tool call to be an object')
    const index = indexOf(call, 'a tool call')
    const before = known?.toolCalls.get(index)
    for (const [name, value] of Object.entries(call)) {
      if (value === null || name === 'index') continue
      if (name === 'id') checkOnce(before?.get('id'), value, { place: `${index} id`, given })
      else if (name === 'type') checkSame(before?.get('type'), value, 'the type of a tool call')
      else if (name === 'function') checkFunction(before?.get('function'), value, `${index} function`, given)
      else checkMerged(before?.get(name), value, `tool_calls.${name}`)
    }
  }
}

function checkFunction(
  before: MergedValue | undefined,
  value: Json,
  place: string,
  given = new Set<string>(),
): void {
  if (!isJsonObject(value)) throw invalid('expected a function to be an object')
  const members = before instanceof Map ? before : undefined
  for (const [name, member] of Object.entries(value)) {
    if (member === null) continue
    if (name === 'name') checkOnce(members?.get('name'), member, { place: `${place} name`, given })
    else if (name === 'arguments') checkText(member, 'arguments')
    else checkMerged(members?.get(name), member, `function.${name}`)
  }
}

/** A name or id is given once, and whole. `given` has the places of those in this chunk. */
function checkOnce(
  before: MergedValue | undefined,
  value: Json,
  { place, given }: { readonly place: string; readonly given: Set<string> },
): void {
  if (typeof value !== 'string') throw changed('expected a name or id to be text')
  if (value === '') return
  if ((before !== undefined && before !== '') || given.has(place))
    throw new FormatError('changed_name', 'expected the name or id of a call once')
  given.add(place)
}

/** Text that must stay the same once it was given. */
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

/** Members unknown here go on in the type that they began with, at every depth of objects. */
function checkMerged(before: MergedValue | undefined, value: Json, where: string): void {
  if (before !== undefined && before !== null && kindOf(before) !== kindOf(value))
    throw changed(`expected ${where} to go on in the type that it began with`)
  if (isJsonObject(value)) checkMembers(before instanceof Map ? before : undefined, value, where)
}

function kindOf(value: Json | MergedValue): string {
  if (Array.isArray(value)) return 'array'
  return value === null ? 'null' : typeof value
}

function indexOf(members: JsonObject, what: string): number {
  const index = memberOf(members, 'index')
  if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0)
    throw invalid(`expected the index of ${what} to be a whole number from 0`)
  return index
}

function isGiven(value: Json | undefined): value is Exclude<Json, null> {
  return value !== undefined && value !== null
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_chunk', message)
}

function changed(message: string): FormatError {
  return new FormatError('changed_type', message)
}
