import { DIALECTS, type Dialect } from '#attestation/dialects/dialects.ts'
import type { TokenUsage } from '#attestation/dialects/usage.ts'
import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '#attestation/json/value.ts'
import { ESTIMATE_MAX } from '../accounts/limits/limiter.ts'

/** The size of a request, as far as it is known without the model's tokenizer. */
export type ChatSize = {
  readonly messages: number
  /** UTF-8 bytes of all texts in the prompt: messages, names, tool calls, and tool descriptions. */
  readonly promptBytes: number
  /** Content parts that are not text. */
  readonly attachments: number
  /** Maximum for each choice. Null if the caller sets no maximum. */
  readonly answerTokensMax: number | null
  readonly choices: number
}

type Members = Readonly<Record<string, unknown>>

/** Newer clients send `max_completion_tokens`, which takes precedence over `max_tokens`. */
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

/** The bytes of a text, or of the JSON of any other value. */
function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0
  return Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value))
}

function countOf(value: unknown): number | null {
  return typeof value === 'number' && value >= 1 ? value : null
}

/** Average of UTF-8 text, in English and in code. */
const BYTES_PER_TOKEN = 4

/**
 * Estimate for a picture, a recording or a file. Providers count 85 to some thousands of tokens,
 * depending on the size.
 */
const ATTACHMENT_TOKENS = 1_000

/** Estimate for the role and the separators of a message. */
const MESSAGE_TOKENS = 4

/** Estimate for each choice without a maximum. Most answers are shorter. */
const ANSWER_TOKENS = 1_024

export function estimatePromptTokens({ promptBytes, attachments, messages }: ChatSize): number {
  return (
    Math.ceil(promptBytes / BYTES_PER_TOKEN) +
    attachments * ATTACHMENT_TOKENS +
    messages * MESSAGE_TOKENS
  )
}

/** Counts the prompt, and the longest allowed answer for each choice. */
export function estimateChatTokens(size: ChatSize): number {
  const answer = Math.ceil(size.answerTokensMax ?? ANSWER_TOKENS) * size.choices
  return Math.min(estimatePromptTokens(size) + answer, ESTIMATE_MAX)
}

/** Counts all texts of a request in a dialect other than chat. */
export function estimateDialectTokens(request: JsonObject): {
  readonly prompt: number
  readonly total: number
} {
  const { max_output_tokens: output, max_tokens: max, n, ...asked } = request
  const prompt = Math.ceil(textBytesOf(asked) / BYTES_PER_TOKEN)
  const answer = (countOf(output) ?? countOf(max) ?? ANSWER_TOKENS) * (countOf(n) ?? 1)
  return { prompt, total: Math.min(prompt + Math.ceil(answer), ESTIMATE_MAX) }
}

export function estimateTextTokens(length: number): number {
  return Math.ceil(length / BYTES_PER_TOKEN)
}

/** Members with a file in base64. A `result` is a picture if it is long enough to be one. */
const FILE_MEMBERS = /^(data|file_data|partial_image_b64)$/
const PICTURE = /^[A-Za-z0-9+/]{1000}/

/** A picture or a file counts as ATTACHMENT_TOKENS. */
function textBytesOf(value: Json | undefined, name = ''): number {
  if (typeof value === 'string')
    return FILE_MEMBERS.test(name) ||
      value.startsWith('data:') ||
      (name === 'result' && PICTURE.test(value))
      ? ATTACHMENT_TOKENS * BYTES_PER_TOKEN
      : Buffer.byteLength(value)
  if (typeof value !== 'object' || value === null) return 0
  return Object.entries(value).reduce((sum, [key, member]) => sum + textBytesOf(member, key), 0)
}

/** An answer with more characters is not parsed for its usage. */
export const PARSED_LENGTH_MAX = 1024 * 1024

/**
 * Returns the tokens that an answer (JSON text) states, or an estimate from its length if the
 * answer states none or is not parsed. The stated number is limited, but otherwise trusted.
 */
export function usedTokensOf(
  answer: string,
  promptTokens: number,
  dialect: Pick<Dialect, 'usageOf'> = DIALECTS.chat,
): { readonly tokens: number; readonly prompt: number } {
  const read = parseShort(answer)
  const stated = dialect.usageOf(read)
  const total = stated?.total_tokens ?? memberAt(read, 'usage', 'total_tokens')
  const estimate = promptTokens + Math.ceil(answer.length / BYTES_PER_TOKEN)
  const tokens = isCount(total) ? total : estimate
  return { tokens: Math.min(tokens, ESTIMATE_MAX), prompt: stated?.prompt_tokens ?? promptTokens }
}

/** `answer`: JSON text. Null if `answer` states no usage or exceeds PARSED_LENGTH_MAX. */
export function readUsage(answer: string, dialect: Pick<Dialect, 'usageOf'>): TokenUsage | null {
  return dialect.usageOf(parseShort(answer))
}

function parseShort(answer: string): JsonObject {
  return answer.length > PARSED_LENGTH_MAX ? {} : JSON.parse(answer)
}

/**
 * Estimates the usage from the lengths of the texts, for a node that states no usage. The result
 * has `estimated: true`.
 */
export function estimateUsage(request: JsonObject, answerLength: number): JsonObject {
  const prompt = promptTokens(memberOf(request, 'messages') ?? null)
  const completion = estimateTextTokens(answerLength)
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
  return estimateTextTokens(length) + messages.length * MESSAGE_TOKENS
}

/** Only text is counted: the length of an image or a sound does not show its tokens. */
function contentLength(content: Json): number {
  if (typeof content === 'string') return content.length
  if (!isJsonArray(content)) return 0
  const texts = content.map((part) =>
    isJsonObject(part) && typeof part.text === 'string' ? part.text.length : 0,
  )
  return texts.reduce((sum, length) => sum + length, 0)
}
