import { arrayOf, invalidChunk, objectOf } from '../../attestation/chunk-forms.ts'
import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../../attestation/json/value.ts'

/** Tool calls of one choice, as OpenAI bounds the tools of a request. */
export const TOOL_CALLS_MAX = 128

/**
 * What is remembered of a tool call: what the node called it. Its index for the caller is its place
 * in the list.
 */
export type ToolCallState = { readonly nodeIndex: number | null; readonly nodeId: string | null }

/**
 * Reads one delta's tool calls (attacker-controlled) and adds new ones to `known`. For the caller
 * they are numbered from 0 without gaps in the order in which they began, because clients fill
 * arrays by these numbers; each begins with id, type, name, and goes on with arguments alone.
 * Backends that leave the index out, or give every call the index 0, tell calls apart by their ids.
 * Null when there is none. Throws FormatError `invalid_chunk`.
 */
export function readToolCalls(known: ToolCallState[], calls: Json, makeCallId: () => string): Json {
  const read = arrayOf(calls, 'tool_calls').map((call) => readToolCall(known, call, makeCallId))
  return read.length === 0 ? null : read
}

function readToolCall(known: ToolCallState[], given: Json, makeCallId: () => string): JsonObject {
  const call = objectOf(given, 'each tool call')
  const nodeIndex = readIndex(call.index)
  const nodeId = typeof call.id === 'string' && call.id !== '' ? call.id : null
  if (call.type !== undefined && call.type !== null && call.type !== '' && call.type !== 'function')
    throw invalidChunk('expected tool calls of type function')
  const { name, text } = readFunction(call.function ?? {})
  const position = findCall(known, { nodeIndex, nodeId, name })
  if (position !== null) return { index: position, function: { arguments: text } }
  if (name === null)
    throw invalidChunk('expected a tool call to begin with the name of its function')
  if (known.length >= TOOL_CALLS_MAX)
    throw invalidChunk(`expected at most ${TOOL_CALLS_MAX} tool calls`)
  known.push({ nodeIndex, nodeId })
  const id = nodeId ?? makeCallId()
  return { index: known.length - 1, id, type: 'function', function: { name, arguments: text } }
}

/** Where the call that goes on stands in `known`; null when a new one begins. */
function findCall(
  known: readonly ToolCallState[],
  { nodeIndex, nodeId, name }: ToolCallState & { readonly name: string | null },
): number | null {
  const position =
    nodeIndex === null
      ? known.length - 1
      : known.findLastIndex((call) => call.nodeIndex === nodeIndex)
  const call = known[position]
  if (call === undefined) return null
  const isOther = nodeId !== null && nodeId !== call.nodeId && name !== null
  return isOther ? null : position
}

function readIndex(index: Json | undefined): number | null {
  if (index === undefined || index === null) return null
  if (!isCount(index))
    throw invalidChunk('expected the index of a tool call to be a whole number from 0')
  return index
}

function readFunction(given: Json): { readonly name: string | null; readonly text: string } {
  const value = objectOf(given, 'function of a tool call')
  const text = value.arguments ?? ''
  if (typeof text !== 'string') throw invalidChunk('expected arguments of a tool call to be a text')
  const name = value.name ?? ''
  if (typeof name !== 'string') throw invalidChunk('expected the name of a function to be a text')
  return { name: name === '' ? null : name, text }
}

/**
 * Log probabilities of a choice (interface 2.2) out of a node's (attacker-controlled): content and
 * refusal, each a list of entries or null. Null when they say nothing. Throws FormatError
 * `invalid_chunk`.
 */
export function readLogprobs(value: Json | undefined): JsonObject | null {
  if (value === undefined || value === null) return null
  if (!isJsonObject(value)) throw invalidChunk('expected logprobs to be an object or null')
  const { content, refusal, ...rest } = value
  const read = { ...rest, content: readEntries(content), refusal: readEntries(refusal) }
  return read.content === null && read.refusal === null ? null : read
}

function readEntries(value: Json | undefined): readonly JsonObject[] | null {
  if (value === undefined || value === null) return null
  if (!isJsonArray(value))
    throw invalidChunk('expected content and refusal of logprobs to be lists or null')
  return value.length === 0 ? null : value.map(readEntry)
}

function readEntry(value: Json): JsonObject {
  const entry = readToken(value)
  const top = entry.top_logprobs ?? []
  if (!isJsonArray(top)) throw invalidChunk('expected top_logprobs to be a list')
  return { ...entry, top_logprobs: top.map(readToken) }
}

function readToken(value: Json): JsonObject {
  const entry = objectOf(value, 'each log probability')
  const { token, logprob, bytes = null } = entry
  if (typeof token !== 'string') throw invalidChunk('expected token to be a text')
  if (typeof logprob !== 'number' || !Number.isFinite(logprob))
    throw invalidChunk('expected logprob to be a number')
  if (bytes !== null && !(isJsonArray(bytes) && bytes.every(Number.isInteger)))
    throw invalidChunk('expected bytes to be a list of whole numbers or null')
  return { ...entry, bytes }
}
