import { FormatError } from '../../../attestation/errors.ts'
import { isJsonObject, type Json, type JsonObject, setMember } from '../../../attestation/json/value.ts'
import { readLogprobs } from './logprobs.ts'
import { readToolCalls, type ToolCallState } from './tool-calls.ts'

/** Why a choice ended (interface 2.2), and the words that backends have for the same. */
const FINISH_REASONS: ReadonlyMap<string, string> = new Map([
  ...['stop', 'length', 'tool_calls', 'content_filter', 'function_call'].map((word) => [word, word] as const),
  ...['eos', 'eos_token', 'end_turn', 'stop_sequence'].map((word) => [word, 'stop'] as const),
  ['max_tokens', 'length'],
])

/** One choice of an answer, as far as its chunks have come. Changed in place. */
export type ChoiceState = {
  readonly index: number
  isBegun: boolean
  isFinished: boolean
  hasFunctionCall: boolean
  readonly toolCalls: ToolCallState[]
}

/** What one chunk's part of a choice becomes: its opening, what it adds, and its end, each null when it is not there. */
export type ChoiceParts = {
  readonly parts: readonly [JsonObject | null, JsonObject | null, JsonObject | null]
  /** Characters of text in it. */
  readonly length: number
}

/** A choice that nothing was read of. */
export function newChoice(index: number): ChoiceState {
  return { index, isBegun: false, isFinished: false, hasFunctionCall: false, toolCalls: [] }
}

/**
 * Reads a chunk's part of the choice (attacker-controlled) and notes it in `state`. Throws FormatError `invalid_chunk` on wrong
 * shapes, on a finish_reason of no known meaning (an answer that was broken off must not look whole), and on
 * whatever comes after the choice's end.
 */
export function readChoice(state: ChoiceState, choice: Json, makeCallId: () => string): ChoiceParts {
  if (!isJsonObject(choice)) throw invalid('expected each choice to be an object')
  const {
    index: _,
    delta: givenDelta,
    finish_reason: reason,
    logprobs: given,
    message: _message,
    ...rest
  } = choice
  const finishReason = readFinishReason(reason)
  const { delta, length } = readDelta(state, givenDelta ?? {}, makeCallId)
  const logprobs = readLogprobs(given)
  const members = withoutNulls(rest)
  const hasMembers = Object.keys(members).length > 0
  const hasContent = Object.keys(delta).length > 0 || logprobs !== null
  if (state.isFinished) {
    if (hasContent || finishReason !== null)
      throw invalid('expected nothing of a choice after its finish_reason')
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
    throw invalid(`expected finish_reason to be one of ${[...FINISH_REASONS.keys()].join()}`)
  return legal
}

/** Members that are null or empty texts say nothing, and the role was said in the opening. */
function readDelta(
  state: ChoiceState,
  given: Json,
  makeCallId: () => string,
): { readonly delta: JsonObject; readonly length: number } {
  if (!isJsonObject(given)) throw invalid('expected delta to be an object')
  const delta: Record<string, Json> = {}
  let length = 0
  for (const [name, value] of Object.entries(given)) {
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
    throw invalid(`expected ${name} to be a text or null`)
  return value
}

/** The older form of a tool call. Its name comes first and whole. */
function readFunctionCall(state: ChoiceState, value: Json): JsonObject {
  const { name, arguments: pieces } = isJsonObject(value) ? value : {}
  const text = pieces ?? ''
  if (typeof text !== 'string') throw invalid('expected arguments of function_call to be a text')
  if (state.hasFunctionCall) return { arguments: text }
  if (typeof name !== 'string' || name === '') throw invalid('expected function_call to begin with a name')
  state.hasFunctionCall = true
  return { name, arguments: text }
}

function textLengthOf(name: string, value: Json): number {
  if (typeof value === 'string') return value.length
  return name === 'tool_calls' || name === 'function_call' ? JSON.stringify(value).length : 0
}

function withoutNulls(members: JsonObject): JsonObject {
  const kept: Record<string, Json> = {}
  for (const [name, value] of Object.entries(members)) if (value !== null) setMember(kept, name, value)
  return kept
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_chunk', message)
}
