import { type Json, type JsonObject, setMember } from '#attestation/json/value.ts'

/** Members of a chat request that the interface (2.1) names, in the same order. */
export const CHAT_MEMBERS = [
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

/**
 * Members of a chat request that every node accepts: the members of the interface (2.1) and of
 * OpenAI's current API. The public client passes them to OpenAI's Python library as named
 * arguments. Any other member causes a TypeError there, except `extra_body`, `extra_headers`,
 * `extra_query` and `timeout`, which would change the HTTP request. Source: OpenAI's API reference,
 * "Create chat completion". The library's `chat.completions.create` has the same names.
 */
export const KNOWN_MEMBERS: ReadonlySet<string> = new Set([
  ...CHAT_MEMBERS,
  'audio',
  'function_call',
  'functions',
  'max_completion_tokens',
  'metadata',
  'modalities',
  'parallel_tool_calls',
  'prediction',
  'prompt_cache_key',
  'prompt_cache_retention',
  'reasoning_effort',
  'safety_identifier',
  'service_tier',
  'store',
  'verbosity',
  'web_search_options',
])

/** Returns the request without the members that some nodes refuse. */
export function withKnownMembers(request: JsonObject): JsonObject {
  const names = Object.keys(request)
  if (names.every((name) => KNOWN_MEMBERS.has(name))) return request
  const known: Record<string, Json> = {}
  for (const name of names)
    if (KNOWN_MEMBERS.has(name)) setMember(known, name, request[name] ?? null)
  return known
}
