import type { ChatSize } from '../../chat/chat-size.ts'

/** Bytes of UTF-8 that make about one token, in English and in code; other scripts have more bytes to a character. */
export const BYTES_PER_TOKEN = 4

/** Tokens that a picture, a recording or a file in a prompt counts for; providers count them by size, of 85 to some thousands. */
export const ATTACHMENT_TOKENS = 1_000

/** What a message has beyond its text: role and separators. */
export const MESSAGE_TOKENS = 4

/** Tokens reserved for each choice when the caller gives no maximum: longer than most answers. */
export const ANSWER_TOKENS = 1_024

/** Larger estimates are all the same: none fits any limit. */
export const ESTIMATE_MAX = 1_000_000_000_000

/** Tokens of a prompt, roughly. */
export function estimatePromptTokens({ promptBytes, attachments, messages }: ChatSize): number {
  return (
    Math.ceil(promptBytes / BYTES_PER_TOKEN) + attachments * ATTACHMENT_TOKENS + messages * MESSAGE_TOKENS
  )
}

/** Tokens that a chat call may use: its prompt, and the longest answer it allows, once for each choice. */
export function estimateChatTokens(size: ChatSize): number {
  const answer = Math.ceil(size.answerTokensMax ?? ANSWER_TOKENS) * size.choices
  return Math.min(estimatePromptTokens(size) + answer, ESTIMATE_MAX)
}
