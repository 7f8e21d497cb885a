import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../attestation/json/value.ts'

/** Members of a stored request that are shown as null when they were not set (interface, 2.4), in this order. */
export const ECHOED_MEMBERS = [
  'messages',
  'model',
  'frequency_penalty',
  'logit_bias',
  'logprobs',
  'top_logprobs',
  'max_tokens',
  'n',
  'presence_penalty',
  'response_format',
  'seed',
  'stop',
  'stream',
  'stream_options',
  'temperature',
  'top_p',
  'tools',
  'tool_choice',
  'user',
] as const

/** The same for each of its messages. */
export const ECHOED_MESSAGE_MEMBERS = ['content', 'function_call', 'role', 'name'] as const

/**
 * The request as a record shows it, from its canonical text: every member of the interface, null where it was not set,
 * then whatever else the caller sent. It hashes to the same value, because hashing leaves those nulls out.
 */
export function echoRequest(canonicalRequest: string): JsonObject {
  const request: JsonObject = JSON.parse(canonicalRequest)
  const { messages } = request
  const echo = withNulls(request, ECHOED_MEMBERS)
  return isJsonArray(messages) ? { ...echo, messages: messages.map(echoMessage) } : echo
}

function echoMessage(message: Json): Json {
  return isJsonObject(message) ? withNulls(message, ECHOED_MESSAGE_MEMBERS) : message
}

/** Object spread makes an own member also of one that is called `__proto__`. */
function withNulls(object: JsonObject, names: readonly string[]): JsonObject {
  const nulls = Object.fromEntries(names.map((name) => [name, null]))
  return { ...nulls, ...object }
}
