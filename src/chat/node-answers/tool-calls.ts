import { FormatError } from '../../../attestation/errors.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../../attestation/json/value.ts'

/** Tool calls of one choice, as OpenAI bounds the tools of a request. */
export const TOOL_CALLS_MAX = 128

/** What is remembered of a tool call: what the node called it. Its index for the caller is its place in the list. */
export type ToolCallState = { readonly nodeIndex: number | null; readonly nodeId: string | null }

/**
 * Reads one delta's tool calls (attacker-controlled) and adds new ones to `known`. For the caller they are numbered from 0 without gaps in
 * the order in which they began, because clients fill arrays by these numbers; each begins with id, type, name, and goes
 * on with arguments alone. Backends that leave the index out, or give every call the index 0, tell calls apart by their ids.
 * Null when there is none. Throws FormatError `invalid_chunk`.
 */
export function readToolCalls(known: ToolCallState[], calls: Json, makeCallId: () => string): Json {
  if (!isJsonArray(calls)) throw invalid('expected tool_calls to be an array')
  const read = calls.map((call) => readToolCall(known, call, makeCallId))
  return read.length === 0 ? null : read
}

function readToolCall(known: ToolCallState[], call: Json, makeCallId: () => string): JsonObject {
  if (!isJsonObject(call)) throw invalid('expected each tool call to be an object')
  const nodeIndex = readIndex(call.index)
  const nodeId = typeof call.id === 'string' && call.id !== '' ? call.id : null
  if (call.type !== undefined && call.type !== null && call.type !== '' && call.type !== 'function')
    throw invalid('expected tool calls of type function')
  const { name, text } = readFunction(call.function ?? {})
  const position = findCall(known, { nodeIndex, nodeId, name })
  if (position !== null) return { index: position, function: { arguments: text } }
  if (name === null) throw invalid('expected a tool call to begin with the name of its function')
  if (known.length >= TOOL_CALLS_MAX) throw invalid(`expected at most ${TOOL_CALLS_MAX} tool calls`)
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
    nodeIndex === null ? known.length - 1 : known.findLastIndex((call) => call.nodeIndex === nodeIndex)
  const call = known[position]
  if (call === undefined) return null
  const isOther = nodeId !== null && nodeId !== call.nodeId && name !== null
  return isOther ? null : position
}

function readIndex(index: Json | undefined): number | null {
  if (index === undefined || index === null) return null
  if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < 0)
    throw invalid('expected the index of a tool call to be a whole number from 0')
  return index
}

function readFunction(value: Json): { readonly name: string | null; readonly text: string } {
  if (!isJsonObject(value)) throw invalid('expected function of a tool call to be an object')
  const text = value.arguments ?? ''
  if (typeof text !== 'string') throw invalid('expected arguments of a tool call to be a text')
  const name = value.name ?? ''
  if (typeof name !== 'string') throw invalid('expected the name of a function to be a text')
  return { name: name === '' ? null : name, text }
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_chunk', message)
}
