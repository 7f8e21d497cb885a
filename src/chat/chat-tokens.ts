import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { DIALECTS, type Dialect } from '#attestation/dialects/dialects.ts'
import { answerBound, type TokenUsage } from '#attestation/dialects/usage.ts'
import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '#attestation/json/value.ts'
import { type Answers, ESTIMATE_MAX, type TokenEstimate } from '../accounts/limits/limiter.ts'
import type { NodeDialect } from '../nodes/protocol/dialects.ts'

/** The size of a request, as far as it is known without the model's tokenizer. */
export type ChatSize = {
  readonly messages: number
  /** UTF-8 bytes of all texts in the prompt: messages, names, tool calls, and tool descriptions. */
  readonly promptBytes: number
  /** Content parts that are not text. */
  readonly attachments: number
  readonly answers: Answers
}

type Members = Readonly<Record<string, unknown>>

export function measureChat(
  request: JsonObject & { readonly messages: readonly unknown[] },
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
    answers: answersAsked('chat', request),
  }
}

/** The bytes of a text, or of the JSON of any other value. */
function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0
  return Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value))
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

/** Counts the prompt, and the longest allowed answer for each choice. */
export function estimateChatTokens({
  promptBytes,
  attachments,
  messages,
  answers,
}: ChatSize): Required<TokenEstimate> {
  const promptTokens =
    Math.ceil(promptBytes / BYTES_PER_TOKEN) +
    attachments * ATTACHMENT_TOKENS +
    messages * MESSAGE_TOKENS
  return withAnswers(promptTokens, answers)
}

/** Counts all texts of a request in a dialect other than chat. */
export function estimateDialectTokens(
  dialect: DialectName | NodeDialect,
  request: JsonObject,
): Required<TokenEstimate> {
  const promptTokens = Math.ceil(textBytesOf(request) / BYTES_PER_TOKEN)
  if (dialect !== 'completions') return withAnswers(promptTokens, answersAsked(dialect, request))
  const { prompt, best_of: tries } = request
  // A list of texts, or of lists of tokens, is a list of prompts. Each prompt has its own answers.
  const isList = isJsonArray(prompt) && typeof prompt[0] !== 'number'
  const { count, tokensMax } = answersAsked('chat', request)
  const choices = Math.max(count, countOf(tries)) * (isList ? prompt.length : 1)
  return withAnswers(promptTokens, { count: choices, tokensMax })
}

function answersAsked(dialect: DialectName, request: JsonObject): Answers {
  return { count: countOf(request.n), tokensMax: answerBound(dialect, request) }
}

/** Programs may read a number in a text. */
function countOf(value: Json | undefined): number {
  const count = Math.ceil(Number(value ?? 1))
  return Number.isNaN(count) ? 1 : Math.max(1, count)
}

function withAnswers(promptTokens: number, answers: Answers): Required<TokenEstimate> {
  const total = promptTokens + answers.count * (answers.tokensMax ?? ANSWER_TOKENS)
  return { promptTokens, answers, estimate: Math.min(total, ESTIMATE_MAX) }
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
