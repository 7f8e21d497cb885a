import { withoutNulls } from '#attestation/dialects/chat/read-choice.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import type { EventWriter } from '../api/event-stream.ts'

/**
 * Writes the stream of a completion (JSON text) again. `withProof` adds a verified completion's
 * proof to the last chunk. The chunks are not the chunks of the first stream, but together they
 * form the signed response with its usage. If the caller asked for no usage chunk, the last chunk
 * has the usage.
 */
export async function replayEvents(
  writer: EventWriter,
  completion: string,
  {
    includesUsage,
    withProof = null,
  }: { readonly includesUsage: boolean; readonly withProof?: ((chunk: string) => string) | null },
): Promise<void> {
  const { chunks, usage } = replayChunks(JSON.parse(completion))
  const given = [...chunks, ...(includesUsage && usage !== null ? [usage] : [])]
  const texts = given.map((chunk) => JSON.stringify(chunk))
  const last = given.at(-1)
  if (withProof !== null && last !== undefined) {
    const whole = usage === null ? last : { ...last, usage: usage.usage ?? null }
    texts.splice(-1, 1, withProof(JSON.stringify(whole)))
  }
  writer.end([...texts, '[DONE]'].map((text) => `data: ${text}\n\n`).join(''))
}

/**
 * Splits a completion into chunks: the role, all content, the finish reasons, the usage. Assembling
 * them (assemble-completion.ts of attestation/dialects/chat) gives the same completion. `usage` is
 * null for a completion without usage.
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

/** Splits a choice. `opening` has the members that every first chunk needs (interface 2.2). */
function splitChoice(choice: JsonObject) {
  const { index = 0, finish_reason = null, logprobs = null, message, ...others } = choice
  const {
    role = 'assistant',
    tool_calls: calls = null,
    ...rest
  } = isJsonObject(message) ? message : {}
  const base = { index, finish_reason: null, logprobs: null }
  return {
    opening: { ...base, delta: { role, content: '' } },
    body: {
      ...others,
      ...base,
      logprobs,
      delta: {
        ...withoutNulls(rest),
        ...(isJsonArray(calls) ? { tool_calls: calls.map(numberCall) } : {}),
      },
    },
    ending: { ...base, finish_reason, delta: { content: '' } },
  }
}

function numberCall(call: Json, index: number): Json {
  return isJsonObject(call) ? { index, ...call } : call
}
