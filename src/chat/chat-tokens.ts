import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../attestation/json/value.ts'
import { ESTIMATE_MAX } from '../accounts/limits/limiter.ts'

/** How much a chat request asks for, as far as that can be known without the model's tokenizer. */
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

/** Of a value other than text, the size of its JSON. */
function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0
  return Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value))
}

function countOf(value: unknown): number | null {
  return typeof value === 'number' && value >= 1 ? value : null
}

/**
 * Bytes of UTF-8 that make about one token, in English and in code; other scripts have more bytes
 * to a character.
 */
const BYTES_PER_TOKEN = 4

/**
 * Tokens that a picture, a recording or a file in a prompt counts for; providers count them by
 * size, of 85 to some thousands.
 */
const ATTACHMENT_TOKENS = 1_000

/** What a message has beyond its text: role and separators. */
const MESSAGE_TOKENS = 4

/** Tokens reserved for each choice when the caller gives no maximum: longer than most answers. */
const ANSWER_TOKENS = 1_024

/** Tokens of a prompt, roughly. */
export function estimatePromptTokens({ promptBytes, attachments, messages }: ChatSize): number {
  return (
    Math.ceil(promptBytes / BYTES_PER_TOKEN) +
    attachments * ATTACHMENT_TOKENS +
    messages * MESSAGE_TOKENS
  )
}

/**
 * Tokens that a chat call may use: its prompt, and the longest answer it allows, once for each
 * choice.
 */
export function estimateChatTokens(size: ChatSize): number {
  const answer = Math.ceil(size.answerTokensMax ?? ANSWER_TOKENS) * size.choices
  return Math.min(estimatePromptTokens(size) + answer, ESTIMATE_MAX)
}

/** Larger answers are not parsed for their usage alone. */
export const PARSED_LENGTH_MAX = 1024 * 1024

/** Tokens of a call that is over, and how many of them are the prompt's. */
type UsedTokens = { readonly tokens: number; readonly prompt: number }

/**
 * Tokens that a completion (JSON text) says it used, prompt included; or, when it does not say, or
 * is very long, an estimate from its length. What a provider or node says is bounded, but believed.
 */
export function usedTokensOf(completion: string, promptTokens: number): UsedTokens {
  const usage = usageOf(completion)
  const stated = partsOf(usage)
  const sum = stated === null ? null : stated.prompt + stated.answer
  const estimate = promptTokens + Math.ceil(completion.length / BYTES_PER_TOKEN)
  const tokens = isCount(usage.total_tokens) ? usage.total_tokens : (sum ?? estimate)
  return { tokens: Math.min(tokens, ESTIMATE_MAX), prompt: stated?.prompt ?? promptTokens }
}

/**
 * Tokens of prompt and answer that a completion (JSON text) states; null when it does not state
 * both, or is very long.
 */
export function readUsage(completion: string): StatedParts | null {
  return partsOf(usageOf(completion))
}

type StatedParts = { readonly prompt: number; readonly answer: number }

function partsOf({
  prompt_tokens: prompt,
  completion_tokens: answer,
}: Members): StatedParts | null {
  return isCount(prompt) && isCount(answer) ? { prompt, answer } : null
}

function usageOf(completion: string): Members {
  if (completion.length > PARSED_LENGTH_MAX) return {}
  const { usage } = JSON.parse(completion) as { readonly usage?: Members | null }
  return usage ?? {}
}

/**
 * Characters of a token on average, in English text. What an estimate is made with; it is never
 * more than that.
 */
const CHARACTERS_PER_TOKEN = 4

/** What chat templates put around each message, tokens. */
const TOKENS_PER_MESSAGE = 4

/**
 * Usage where a node stated none, from the lengths of the texts. It is marked by `estimated: true`,
 * a member of ours, so that it is not taken for a count.
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

/** Only text counts: the length of an image's or a sound's data does not show its tokens. */
function contentLength(content: Json): number {
  if (typeof content === 'string') return content.length
  if (!isJsonArray(content)) return 0
  const texts = content.map((part) =>
    isJsonObject(part) && typeof part.text === 'string' ? part.text.length : 0,
  )
  return texts.reduce((sum, length) => sum + length, 0)
}
