import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '#attestation/json/value.ts'

/** Facts that the gateway measured. A node's usage claim is checked against them. */
type RunEvidence = {
  readonly promptTokensMax: number
  /** UTF-16 units. */
  readonly textLength: number
  /** Chunks that have text or the end of a choice. */
  readonly tokenChunks: number
}

/** Tokens that a chat template can add. Every other token has at least one byte. */
export const PROMPT_TOKENS_EXTRA = 1_024
/** Tokens that an image or sound can add, even if the request has only its address. */
export const MEDIA_TOKENS_EXTRA = 16_384
/** Maximum number of UTF-8 bytes for one UTF-16 unit. A token of text has at least one byte. */
const BYTES_PER_UNIT = 3
/** Some backends count this many tokens for the end of an answer. */
export const COMPLETION_TOKENS_EXTRA = 16

/**
 * Limits each count that a node claims to the tokens that can exist. There are at most
 * `promptTokensMax` prompt tokens, and at most as many completion tokens as bytes in the answer's
 * text, plus one per token chunk, plus COMPLETION_TOKENS_EXTRA. Counts of details above these
 * limits are dropped. Returns null when the claim has no valid counts.
 *
 * Does NOT show that the counts are right: within the limits a node may still claim several times
 * too much.
 */
export function boundUsage(claim: JsonObject, evidence: RunEvidence): JsonObject | null {
  const prompt = countOf(memberOf(claim, 'prompt_tokens'))
  const completion = countOf(memberOf(claim, 'completion_tokens'))
  if (prompt === null || completion === null) return null
  const promptTokens = Math.min(prompt, evidence.promptTokensMax)
  const completionTokens = Math.min(completion, completionTokensMax(evidence))
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    ...detailsOf(claim, 'prompt_tokens_details', promptTokens),
    ...detailsOf(claim, 'completion_tokens_details', completionTokens),
  }
}

/** `requestBytes` does not count the media (`mediaBytesOf`). */
export function promptTokensMax(request: JsonObject, requestBytes: number): number {
  const parts = mediaOf(request)
  return (
    requestBytes + (parts.length === 0 ? PROMPT_TOKENS_EXTRA : parts.length * MEDIA_TOKENS_EXTRA)
  )
}

/** Returns the bytes of pictures and sounds. */
export function mediaBytesOf(request: JsonObject): number {
  return mediaOf(request).reduce<number>((sum, part) => sum + payloadBytesOf(part), 0)
}

function mediaOf(request: JsonObject): readonly Json[] {
  const messages = memberOf(request, 'messages')
  if (!isJsonArray(messages)) return []
  return messages.flatMap((message) => {
    const content = isJsonObject(message) ? message.content : undefined
    return isJsonArray(content)
      ? content.filter((part) => !(isJsonObject(part) && part.type === 'text'))
      : []
  })
}

/** Counts only base64, which has one byte per character. */
function payloadBytesOf(part: Json): number {
  if (!isJsonObject(part)) return 0
  const { image_url: image, input_audio: audio, file } = part
  const payloads = [
    isJsonObject(image) ? image.url : undefined,
    isJsonObject(audio) ? audio.data : undefined,
    isJsonObject(file) ? file.file_data : undefined,
  ]
  return payloads.reduce<number>((sum, text) => sum + (isBase64(text) ? text.length : 0), 0)
}

function isBase64(text: Json | undefined): text is string {
  return typeof text === 'string' && /^(data:[\w/+.;=-]{0,128},)?[\w+/=-]*$/.test(text)
}

function completionTokensMax({ textLength, tokenChunks }: RunEvidence): number {
  return textLength * BYTES_PER_UNIT + tokenChunks + COMPLETION_TOKENS_EXTRA
}

function countOf(value: Json | undefined): number | null {
  return isCount(value) ? value : null
}

/** Keeps the details that are counts of at most `max`, under any short name. */
function detailsOf(claim: JsonObject, name: string, max: number): JsonObject {
  const details = memberOf(claim, name)
  if (!isJsonObject(details)) return {}
  const counts = Object.entries(details).slice(0, DETAILS_MAX)
  return {
    [name]: Object.fromEntries(
      counts.filter(
        ([key, value]) =>
          key.length <= DETAIL_NAME_LENGTH_MAX && (countOf(value) ?? max + 1) <= max,
      ),
    ),
  }
}

const DETAILS_MAX = 16
const DETAIL_NAME_LENGTH_MAX = 64
