import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../attestation/json/value.ts'

/**
 * Chunks of a stream that amount to a completion which was assembled from one: the role, then everything, then the reasons
 * for the end, then the usage. Assembled again (attestation/assemble-completion.ts) they give the same completion.
 * `usage` is null for a completion without.
 */
export function replayChunks(completion: JsonObject): {
  readonly chunks: readonly JsonObject[]
  readonly usage: JsonObject | null
} {
  const { choices, usage = null, object: _, ...members } = completion
  const parts = isJsonArray(choices) ? choices.filter(isJsonObject).map(splitChoice) : []
  const chunkOf = (list: readonly JsonObject[]): JsonObject => ({
    ...members,
    object: 'chat.completion.chunk',
    choices: list,
    usage: null,
  })
  return {
    chunks: [
      chunkOf(parts.map(({ opening }) => opening)),
      chunkOf(parts.map(({ body }) => body)),
      chunkOf(parts.map(({ ending }) => ending)),
    ],
    usage: usage === null ? null : { ...chunkOf([]), usage },
  }
}

/** What a chunk's choice has by interface 2.2, when it says nothing yet. */
function splitChoice(choice: JsonObject) {
  const { index = 0, finish_reason = null, logprobs = null, message, ...others } = choice
  const { role = 'assistant', tool_calls: calls = null, ...rest } = isJsonObject(message) ? message : {}
  const base = { index, finish_reason: null, logprobs: null }
  return {
    opening: { ...base, delta: { role, content: '' } },
    body: {
      ...others,
      ...base,
      logprobs,
      delta: { ...withoutNulls(rest), ...(isJsonArray(calls) ? { tool_calls: calls.map(numberCall) } : {}) },
    },
    ending: { ...base, finish_reason, delta: { content: '' } },
  }
}

function withoutNulls(members: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null))
}

function numberCall(call: Json, index: number): Json {
  return isJsonObject(call) ? { index, ...call } : call
}
