import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'

/** Characters of a token on average, in English text. What an estimate is made with; it is never more than that. */
export const CHARACTERS_PER_TOKEN = 4

/** What chat templates put around each message, tokens. */
const TOKENS_PER_MESSAGE = 4

/**
 * Usage where a node stated none, from the lengths of the texts. Marked as such by `estimated: true`, a member of ours, so that nobody
 * takes it for a count.
 */
export function estimateUsage(request: JsonObject, answerLength: number): JsonObject {
  const prompt = promptTokens(memberOf(request, 'messages') ?? null)
  const completion = Math.ceil(answerLength / CHARACTERS_PER_TOKEN)
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    estimated: true,
  }
}

function promptTokens(messages: Json): number {
  if (!isJsonArray(messages)) return 0
  let length = 0
  for (const message of messages) if (isJsonObject(message)) length += contentLength(message.content ?? null)
  return Math.ceil(length / CHARACTERS_PER_TOKEN) + messages.length * TOKENS_PER_MESSAGE
}

/** Text alone: the length of an image's or a sound's data says nothing about its tokens. */
function contentLength(content: Json): number {
  if (typeof content === 'string') return content.length
  if (!isJsonArray(content)) return 0
  const texts = content.map((part) =>
    isJsonObject(part) && typeof part.text === 'string' ? part.text.length : 0,
  )
  return texts.reduce((sum, length) => sum + length, 0)
}
