import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../attestation/json/value.ts'
import { ESTIMATE_MAX } from '../accounts/limits/limiter.ts'

/** Size of a chat request, as far as it can be known without the model's tokenizer. */
export type ChatSize = {
  readonly messages: number
  /**
   * UTF-8 bytes of all texts in the prompt: messages, names, tool calls, and the descriptions of
   * tools.
   */
  readonly promptBytes: number
  /** Number of content parts that are not text. */
  readonly attachments: number
  /**
   * The maximum number of tokens that the caller allows for each choice. Null if the caller sets no
   * limit.
   */
  readonly answerTokensMax: number | null
  readonly choices: number
}

type Members = Readonly<Record<string, unknown>>

/**
 * Measures a valid request, whose messages are objects. `max_completion_tokens` takes precedence
 * over `max_tokens`. Newer clients send the former.
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

/**
 * Returns the number of bytes of a text. For any other value, returns the number of bytes of its
 * JSON.
 */
function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0
  return Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value))
}

function countOf(value: unknown): number | null {
  return typeof value === 'number' && value >= 1 ? value : null
}

/**
 * Average UTF-8 bytes per token, in English and in code. Other scripts have more bytes per
 * character.
 */
const BYTES_PER_TOKEN = 4

/**
 * How many tokens are counted for a picture, a recording or a file in a prompt. Providers count
 * them by size, from 85 to some thousands.
 */
const ATTACHMENT_TOKENS = 1_000

/** Tokens of a message in addition to its text. They are for the role and the separators. */
const MESSAGE_TOKENS = 4

/**
 * Tokens that are reserved for each choice if the caller sets no maximum. Most answers are shorter.
 */
const ANSWER_TOKENS = 1_024

/** Estimates the tokens of a prompt. */
export function estimatePromptTokens({ promptBytes, attachments, messages }: ChatSize): number {
  return (
    Math.ceil(promptBytes / BYTES_PER_TOKEN) +
    attachments * ATTACHMENT_TOKENS +
    messages * MESSAGE_TOKENS
  )
}

/**
 * Returns how many tokens a chat call may use. It is the sum of the prompt and the longest allowed
 * answer for each choice.
 */
export function estimateChatTokens(size: ChatSize): number {
  const answer = Math.ceil(size.answerTokensMax ?? ANSWER_TOKENS) * size.choices
  return Math.min(estimatePromptTokens(size) + answer, ESTIMATE_MAX)
}

/** An answer that is longer than this is not parsed only to read its usage. */
export const PARSED_LENGTH_MAX = 1024 * 1024

/** Tokens of a finished call, and how many of them belong to the prompt. */
type UsedTokens = { readonly tokens: number; readonly prompt: number }

/**
 * Returns the number of tokens that a completion (JSON text) states, including the prompt. If it
 * states no number, or is very long, returns an estimate from its length. The number from a
 * provider or node is limited, but otherwise trusted.
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
 * Returns the tokens of the prompt and of the answer that a completion (JSON text) states. Returns
 * null if it does not state these two numbers, or is very long.
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

/** Average characters per token in English text. It is used only for estimates. */
const CHARACTERS_PER_TOKEN = 4

/** Tokens that chat templates add to each message. */
const TOKENS_PER_MESSAGE = 4

/**
 * Estimates the usage from the lengths of the texts, if a node stated no usage. The additional
 * member `estimated: true` marks it as an estimate.
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

/**
 * Only text is counted. The length of the data of an image or a sound does not show how many tokens
 * it has.
 */
function contentLength(content: Json): number {
  if (typeof content === 'string') return content.length
  if (!isJsonArray(content)) return 0
  const texts = content.map((part) =>
    isJsonObject(part) && typeof part.text === 'string' ? part.text.length : 0,
  )
  return texts.reduce((sum, length) => sum + length, 0)
}
