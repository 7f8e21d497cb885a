import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'

/** Facts that the gateway itself knows about a run. They are used to check a node's usage claim. */
type RunEvidence = {
  /** See promptTokensMax. */
  readonly promptTokensMax: number
  /** UTF-16 units of text in the answer. */
  readonly textLength: number
  /** Chunks with text, or with the end of a choice. */
  readonly tokenChunks: number
}

/** How many tokens chat templates may add to a prompt, beyond one token per byte. */
export const PROMPT_TOKENS_EXTRA = 1_024
/** How many tokens each image or sound may add. The request may contain only its short address. */
export const MEDIA_TOKENS_EXTRA = 16_384
/** Maximum number of UTF-8 bytes per UTF-16 unit. A token of text has at least one byte. */
const BYTES_PER_UNIT = 3
/** Tokens at the end of an answer that some backends count. */
export const COMPLETION_TOKENS_EXTRA = 16

/**
 * Makes a node's usage claim plausible. Counts are integers from 0. There are at most
 * `promptTokensMax` prompt tokens. There are at most as many completion tokens as the answer's text
 * has bytes, plus one per token chunk, plus COMPLETION_TOKENS_EXTRA. The total is their sum, and
 * details are only counts within these limits. Null when the claim has no valid counts. It does NOT
 * show that the counts are right: within the limits a node may still claim several times too much.
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
 * The most tokens that a request's prompt can have. `requestBytes` does not include its media
 * (`mediaBytesOf`). A caller's limits are charged with the node's claim.
 */
export function promptTokensMax(request: JsonObject, requestBytes: number): number {
  const parts = mediaOf(request)
  return (
    requestBytes + (parts.length === 0 ? PROMPT_TOKENS_EXTRA : parts.length * MEDIA_TOKENS_EXTRA)
  )
}

/**
 * Bytes of the pictures and sounds that the request itself contains. Their size does not show how
 * many tokens they take.
 */
export function mediaBytesOf(request: JsonObject): number {
  return mediaOf(request).reduce<number>((sum, part) => sum + payloadBytesOf(part), 0)
}

/** Content parts that are not text. */
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

/** Counts only base64, which has one byte for each character. */
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

/**
 * Gives the details that are counts up to `max`, under any names. All other details are left out.
 */
function detailsOf(claim: JsonObject, name: string, max: number): JsonObject {
  const details = memberOf(claim, name)
  if (!isJsonObject(details)) return {}
  const counts = Object.entries(details).slice(0, DETAILS_MAX)
  return {
    [name]: Object.fromEntries(counts.filter(([, value]) => (countOf(value) ?? max + 1) <= max)),
  }
}

const DETAILS_MAX = 16
