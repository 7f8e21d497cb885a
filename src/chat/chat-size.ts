import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../attestation/json/value.ts'

/** How much a chat request asks for, as far as that can be told without the model's tokenizer. */
export type ChatSize = {
  readonly messages: number
  /**
   * UTF-8 bytes of all texts of the prompt: messages, names, tool calls, and the descriptions of
   * tools.
   */
  readonly promptBytes: number
  /** Content parts that are no text. */
  readonly attachments: number
  /** Longest answer per choice that the caller allows, tokens; null when that is left open. */
  readonly answerTokensMax: number | null
  readonly choices: number
}

type Members = Readonly<Record<string, unknown>>

/**
 * Measures a request that was found valid, so that its messages are objects.
 * `max_completion_tokens`, which newer clients send, goes before `max_tokens`.
 */
export function measureChat(
  request: Members & { readonly messages: readonly unknown[] },
): ChatSize {
  let promptBytes = 0
  let attachments = 0
  for (const message of request.messages) {
    const { content, name, refusal, tool_calls: calls, function_call: call } = message as Members
    promptBytes += bytesOf(name) + bytesOf(refusal) + bytesOf(calls) + bytesOf(call)
    if (!Array.isArray(content)) promptBytes += bytesOf(content)
    else
      for (const part of content)
        if (typeof part?.text === 'string') promptBytes += bytesOf(part.text)
        else attachments++
  }
  promptBytes += bytesOf(request.tools) + bytesOf(request.response_format)
  return {
    messages: request.messages.length,
    promptBytes,
    attachments,
    answerTokensMax: countOf(request.max_completion_tokens) ?? countOf(request.max_tokens),
    choices: countOf(request.n) ?? 1,
  }
}

/** Of a value that is no text, its JSON's. */
function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0
  return Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value))
}

function countOf(value: unknown): number | null {
  return typeof value === 'number' && value >= 1 ? value : null
}

/**
 * Characters of a token on average, in English text. What an estimate is made with; it is never
 * more than that.
 */
const CHARACTERS_PER_TOKEN = 4

/** What chat templates put around each message, tokens. */
const TOKENS_PER_MESSAGE = 4

/**
 * Usage where a node stated none, from the lengths of the texts. Marked as such by `estimated:
 * true`, a member of ours, so that nobody takes it for a count.
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
  for (const message of messages)
    if (isJsonObject(message)) length += contentLength(message.content ?? null)
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
