import {
  type ChunkIdentity,
  carryMembers,
  invalidChunk,
  makeChunk,
  objectOf,
} from '../../attestation/chunk-forms.ts'
import { isProofMember } from '../../attestation/completion-hash.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  setMember,
} from '../../attestation/json/value.ts'
import { readLogprobs, readToolCalls, type ToolCallState } from './choice-members.ts'

/**
 * Brings the chunks of one node's answer into the form that callers are promised. Belongs to one
 * answer.
 */
export type NodeChunks = {
  /**
   * The caller's chunks for one of the node's (attacker-controlled), none to three. Throws
   * FormatError `invalid_chunk` for what cannot be part of an answer.
   */
  push(chunk: JsonObject): readonly JsonObject[]
  /** Says that the node is done. Throws FormatError `invalid_chunk` when its answer is not. */
  finish(): void
  /** The chunk that holds nothing but usage, for after `finish`. */
  usageChunk(usage: JsonObject): JsonObject
  /** The newest usage the node stated, as the node's socket has bounded it, or null. */
  usage(): JsonObject | null
  /** Characters of text that the answer holds, calls of functions included. */
  textLength(): number
}

/**
 * Reader of one node's chunks. The form is that of the interface, 2.2 and part 6: one id, created
 * and model; each choice begins with role `assistant` and empty content and ends with its
 * finish_reason and empty content; usage is null; finish_reason, logprobs and tool calls have legal
 * values only. Unknown members pass, but for those that stand for a proof, which only verified
 * answers have. A choice beyond the `choicesAsked` is refused.
 *
 * It does NOT show that a node ran the model it offers, nor that the usage it states is true.
 */
export function createNodeChunks(options: {
  /** The gateway's words, because a node's are its own claim; the model is the one asked for. */
  readonly identity: ChunkIdentity
  readonly choicesAsked: number
  /** A new id for a tool call that came without one. */
  readonly makeCallId: () => string
}): NodeChunks {
  const { identity, choicesAsked, makeCallId } = options
  const choices = new Map<number, ChoiceState>()
  let usage: JsonObject | null = null
  let carried: JsonObject = {}
  let textLength = 0

  function push(told: JsonObject): readonly JsonObject[] {
    const chunk = withoutPrototypes(told) as JsonObject
    const { choices: given, usage: claim } = chunk
    if (isJsonObject(claim)) usage = claim
    const members = readMembers(chunk)
    if (!isJsonArray(given) || given.length === 0) {
      carried = carryMembers(carried, members)
      return []
    }
    const groups: readonly JsonObject[][] = [[], [], []]
    for (const choice of given) {
      const { parts, length } = readChoice(stateOf(choice), choice, makeCallId)
      textLength += length
      for (const [position, part] of parts.entries())
        if (part !== null) groups[position]?.push(part)
    }
    return makeChunks(groups, members)
  }

  function stateOf(choice: Json): ChoiceState {
    const index = isJsonObject(choice) ? choice.index : undefined
    if (typeof index !== 'number' || !Number.isInteger(index) || index < 0 || index >= choicesAsked)
      throw invalidChunk(`expected the index of a choice from 0 to ${choicesAsked - 1}`)
    const state = choices.get(index) ?? newChoice(index)
    choices.set(index, state)
    return state
  }

  function makeChunks(groups: readonly JsonObject[][], members: JsonObject): readonly JsonObject[] {
    const filled = groups.filter((group) => group.length > 0)
    if (filled.length === 0) return []
    const all = { ...carried, ...members }
    carried = {}
    return filled.map((group) => makeChunk(identity, { members: all, choices: group }))
  }

  function finish(): void {
    if (choices.size === 0) throw invalidChunk('expected at least one choice')
    for (const { isFinished, index } of choices.values())
      if (!isFinished) throw invalidChunk(`expected a finish_reason of choice ${index}`)
  }

  return {
    push,
    finish,
    usageChunk: (stated) => makeChunk(identity, { members: carried, choices: [], usage: stated }),
    usage: () => usage,
    textLength: () => textLength,
  }
}

/**
 * What is left of a chunk's own members: those the interface knows have its types, a proof's are
 * gone.
 */
function readMembers(chunk: JsonObject): JsonObject {
  const { error } = chunk
  if (error !== undefined && error !== null) throw invalidChunk('expected a chunk, got an error')
  const members: Record<string, Json> = {}
  for (const [name, value] of Object.entries(chunk))
    if (!OURS.has(name) && !isProofMember(name) && (isTextOrNull(value) || !OWN_TEXTS.has(name)))
      setMember(members, name, value)
  return members
}

/** Members that the caller's chunks have from us. */
const OURS: ReadonlySet<string> = new Set([
  ...['id', 'object', 'created', 'model', 'choices', 'usage', 'error'],
])

const OWN_TEXTS: ReadonlySet<string> = new Set(['system_fingerprint', 'service_tier'])

function isTextOrNull(value: Json): boolean {
  return value === null || typeof value === 'string'
}

/**
 * The value without members called `__proto__`, at any depth: clients that assign members one by
 * one would give an object a prototype of the node's. Gives `value` itself when it has none.
 */
function withoutPrototypes(value: Json): Json {
  if (!hasPrototypes(value)) return value
  if (isJsonArray(value)) return value.map(withoutPrototypes)
  if (!isJsonObject(value)) return value
  const kept = Object.entries(value).filter(([name]) => name !== '__proto__')
  return Object.fromEntries(kept.map(([name, member]) => [name, withoutPrototypes(member)]))
}

/** Allocates nothing, because nearly every chunk has none. */
function hasPrototypes(value: Json | undefined): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (isJsonArray(value)) {
    for (const item of value) if (hasPrototypes(item)) return true
    return false
  }
  if (Object.hasOwn(value, '__proto__')) return true
  for (const name in value) if (hasPrototypes(value[name])) return true
  return false
}

/** Why a choice ended (interface 2.2), and the words that backends have for the same. */
const FINISH_REASONS: ReadonlyMap<string, string> = new Map([
  ...['stop', 'length', 'tool_calls', 'content_filter', 'function_call'].map(
    (word) => [word, word] as const,
  ),
  ...['eos', 'eos_token', 'end_turn', 'stop_sequence'].map((word) => [word, 'stop'] as const),
  ['max_tokens', 'length'],
])

/** One choice of an answer, as far as its chunks have come. Changed in place. */
type ChoiceState = {
  readonly index: number
  isBegun: boolean
  isFinished: boolean
  hasFunctionCall: boolean
  readonly toolCalls: ToolCallState[]
}

/**
 * What one chunk's part of a choice becomes: its opening, what it adds, and its end, each null when
 * it is not there.
 */
type ChoiceParts = {
  readonly parts: readonly [JsonObject | null, JsonObject | null, JsonObject | null]
  /** Characters of text in it. */
  readonly length: number
}

/** A choice that nothing was read of. */
function newChoice(index: number): ChoiceState {
  return { index, isBegun: false, isFinished: false, hasFunctionCall: false, toolCalls: [] }
}

/**
 * Reads a chunk's part of the choice (attacker-controlled) and notes it in `state`. Throws
 * FormatError `invalid_chunk` on wrong shapes, on a finish_reason of no known meaning (an answer
 * that was broken off must not look whole), and on whatever comes after the choice's end.
 */
function readChoice(state: ChoiceState, choice: Json, makeCallId: () => string): ChoiceParts {
  const {
    index: _,
    delta: givenDelta,
    finish_reason: reason,
    logprobs: given,
    message: _message,
    ...rest
  } = objectOf(choice, 'each choice')
  const finishReason = readFinishReason(reason)
  const { delta, length } = readDelta(state, givenDelta ?? {}, makeCallId)
  const logprobs = readLogprobs(given)
  const members = withoutNulls(rest)
  const hasMembers = Object.keys(members).length > 0
  const hasContent = Object.keys(delta).length > 0 || logprobs !== null
  if (state.isFinished) {
    if (hasContent || finishReason !== null)
      throw invalidChunk('expected nothing of a choice after its finish_reason')
    return NOTHING
  }
  const { index } = state
  const opening = state.isBegun ? null : openingOf(index)
  state.isBegun = true
  state.isFinished = finishReason !== null
  const isAdding = hasContent || (hasMembers && !state.isFinished)
  const own = state.isFinished ? {} : members
  const added = isAdding ? { ...own, index, delta, logprobs, finish_reason: null } : null
  const end = state.isFinished
    ? { ...members, index, delta: { content: '' }, logprobs: null, finish_reason: finishReason }
    : null
  return { parts: [opening, added, end], length }
}

const NOTHING: ChoiceParts = { parts: [null, null, null], length: 0 }

function openingOf(index: number): JsonObject {
  return { index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }
}

function readFinishReason(reason: Json | undefined): string | null {
  if (reason === undefined || reason === null || reason === '') return null
  const legal = typeof reason === 'string' ? FINISH_REASONS.get(reason) : undefined
  if (legal === undefined)
    throw invalidChunk(`expected finish_reason to be one of ${[...FINISH_REASONS.keys()].join()}`)
  return legal
}

/** Members that are null or empty texts say nothing, and the role was said in the opening. */
function readDelta(
  state: ChoiceState,
  given: Json,
  makeCallId: () => string,
): { readonly delta: JsonObject; readonly length: number } {
  const delta: Record<string, Json> = {}
  let length = 0
  for (const [name, value] of Object.entries(objectOf(given, 'delta'))) {
    if (value === null || value === '' || name === 'role') continue
    const read = readMember(state, name, value, makeCallId)
    if (read === null) continue
    length += textLengthOf(name, read)
    setMember(delta, name, read)
  }
  return { delta, length }
}

/** A delta's member in its legal form; null when there is nothing in it. */
function readMember(state: ChoiceState, name: string, value: Json, makeCallId: () => string): Json {
  if (name === 'tool_calls') return readToolCalls(state.toolCalls, value, makeCallId)
  if (name === 'function_call') return readFunctionCall(state, value)
  if ((name === 'content' || name === 'refusal') && typeof value !== 'string')
    throw invalidChunk(`expected ${name} to be a text or null`)
  return value
}

/** The older form of a tool call. Its name comes first and whole. */
function readFunctionCall(state: ChoiceState, value: Json): JsonObject {
  const { name, arguments: pieces } = isJsonObject(value) ? value : {}
  const text = pieces ?? ''
  if (typeof text !== 'string')
    throw invalidChunk('expected arguments of function_call to be a text')
  if (state.hasFunctionCall) return { arguments: text }
  if (typeof name !== 'string' || name === '')
    throw invalidChunk('expected function_call to begin with a name')
  state.hasFunctionCall = true
  return { name, arguments: text }
}

function textLengthOf(name: string, value: Json): number {
  if (typeof value === 'string') return value.length
  return name === 'tool_calls' || name === 'function_call' ? JSON.stringify(value).length : 0
}

/** The members that are not null. */
export function withoutNulls(members: JsonObject): JsonObject {
  const kept: Record<string, Json> = {}
  for (const [name, value] of Object.entries(members))
    if (value !== null) setMember(kept, name, value)
  return kept
}
