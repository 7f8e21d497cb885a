import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'

/** Facts about a run that the gateway itself knows, to check a node's usage claim. */
type RunEvidence = {
  /** See promptTokensMax. */
  readonly promptTokensMax: number
  /** Length of the text in the answer, UTF-16 units. */
  readonly textLength: number
  /** Number of chunks that have text or the end of a choice. */
  readonly tokenChunks: number
}

/**
 * How many tokens chat templates may add to a prompt, which otherwise has at most one token per
 * byte.
 */
export const PROMPT_TOKENS_EXTRA = 1_024
/** How many tokens each image or sound may add, even if the request contains only its address. */
export const MEDIA_TOKENS_EXTRA = 16_384
/** Maximum number of UTF-8 bytes per UTF-16 unit. A token of text has at least one byte. */
const BYTES_PER_UNIT = 3
/** Number of tokens that some backends count for the end of an answer. */
export const COMPLETION_TOKENS_EXTRA = 16

/**
 * Makes the usage that a node claims plausible. Counts are integers from 0. There are at most
 * `promptTokensMax` prompt tokens. There are at most as many completion tokens as bytes in the
 * answer's text, plus one per token chunk, plus COMPLETION_TOKENS_EXTRA. The total is the sum of
 * prompt and completion tokens. Details are kept only if they are counts within these limits. Null
 * when the claim has no valid counts. Does NOT show that the counts are right: within the limits a
 * node may still claim several times too much.
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

/**
 * Returns the maximum number of tokens that a request's prompt can have. `requestBytes` is without
 * the media (`mediaBytesOf`). The tokens that the node claims count toward the caller's limits.
 */
export function promptTokensMax(request: JsonObject, requestBytes: number): number {
  const parts = mediaOf(request)
  return (
    requestBytes + (parts.length === 0 ? PROMPT_TOKENS_EXTRA : parts.length * MEDIA_TOKENS_EXTRA)
  )
}

/**
 * Returns the number of bytes of the pictures and sounds in the request itself. This number does
 * not show how many tokens the media take.
 */
export function mediaBytesOf(request: JsonObject): number {
  return mediaOf(request).reduce<number>((sum, part) => sum + payloadBytesOf(part), 0)
}

/** Returns the content parts that are not text. */
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

/** Returns the details that are counts of at most `max`, under any names. */
function detailsOf(claim: JsonObject, name: string, max: number): JsonObject {
  const details = memberOf(claim, name)
  if (!isJsonObject(details)) return {}
  const counts = Object.entries(details).slice(0, DETAILS_MAX)
  return {
    [name]: Object.fromEntries(counts.filter(([, value]) => (countOf(value) ?? max + 1) <= max)),
  }
}

const DETAILS_MAX = 16
