import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '../../../attestation/json/value.ts'

/** What the gateway itself knows of a run, to hold a node's usage claim against. */
type RunEvidence = {
  /** See promptTokensMax. */
  readonly promptTokensMax: number
  /** UTF-16 units of text in the answer. */
  readonly textLength: number
  /** Chunks that said something. */
  readonly tokenChunks: number
}

/** What chat templates may add to a prompt beyond a token per byte. */
export const PROMPT_TOKENS_EXTRA = 1_024
/** And each image or sound, which may stand in a request as a short address. */
export const MEDIA_TOKENS_EXTRA = 16_384
/** UTF-8 bytes per UTF-16 unit at most; and no token of text is shorter than a byte. */
const BYTES_PER_UNIT = 3
/** Tokens that end an answer and are counted by some backends. */
export const COMPLETION_TOKENS_EXTRA = 16

/**
 * A node's usage claim, made plausible: counts are integers from 0, no more prompt tokens than
 * `promptTokensMax`, no more completion tokens than the answer's text has bytes (plus one per chunk
 * that said something and COMPLETION_TOKENS_EXTRA), the total their sum, and details only counts
 * within these. Null when it is no usage at all.
 *
 * It does NOT show that the counts are right: within the bounds a node may still claim several
 * times too much.
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
 * The most tokens that a request can have as a prompt; `requestBytes` are those without its media
 * (`mediaBytesOf`). A limit of the caller's is charged with what a node claims.
 */
export function promptTokensMax(request: JsonObject, requestBytes: number): number {
  const parts = mediaOf(request)
  return (
    requestBytes + (parts.length === 0 ? PROMPT_TOKENS_EXTRA : parts.length * MEDIA_TOKENS_EXTRA)
  )
}

/**
 * Bytes of a request that are pictures and sounds written into it: their tokens have nothing to do
 * with their size.
 */
export function mediaBytesOf(request: JsonObject): number {
  return mediaOf(request).reduce<number>((sum, part) => sum + payloadBytesOf(part), 0)
}

/** Content parts that are no text. */
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

/** Counts base64 alone: it has one byte for each character. */
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

/** Details a backend counts, by whatever names; all but counts up to `max` is left out. */
function detailsOf(claim: JsonObject, name: string, max: number): JsonObject {
  const details = memberOf(claim, name)
  if (!isJsonObject(details)) return {}
  const counts = Object.entries(details).slice(0, DETAILS_MAX)
  return {
    [name]: Object.fromEntries(counts.filter(([, value]) => (countOf(value) ?? max + 1) <= max)),
  }
}

const DETAILS_MAX = 16
