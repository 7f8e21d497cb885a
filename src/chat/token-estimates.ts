import { ESTIMATE_MAX } from '../accounts/limits/limiter.ts'
import type { ChatSize } from './chat-size.ts'

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

/**
 * Tokens that a completion (JSON text) says it used, prompt included; or, when it does not say, or
 * is very long, an estimate from its length. What a provider or node says is bounded, but believed.
 */
export function usedTokensOf(completion: string, promptTokens: number): number {
  const total = completion.length > PARSED_LENGTH_MAX ? null : readTotal(completion)
  return Math.min(
    total ?? promptTokens + Math.ceil(completion.length / BYTES_PER_TOKEN),
    ESTIMATE_MAX,
  )
}

/**
 * Tokens of prompt and answer that a completion (JSON text) states; null when it does not state
 * both.
 */
export function readUsage(
  completion: string,
): { readonly prompt: number; readonly answer: number } | null {
  const { prompt_tokens: prompt, completion_tokens: answer } = usageOf(completion)
  return isCount(prompt) && isCount(answer) ? { prompt, answer } : null
}

function readTotal(completion: string): number | null {
  const {
    total_tokens: total,
    prompt_tokens: prompt,
    completion_tokens: answer,
  } = usageOf(completion)
  if (isCount(total)) return total
  return isCount(prompt) && isCount(answer) ? prompt + answer : null
}

function usageOf(completion: string): Readonly<Record<string, unknown>> {
  const { usage } = JSON.parse(completion) as {
    readonly usage?: Readonly<Record<string, unknown>> | null
  }
  return usage ?? {}
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}
