import { isJsonObject, type Json, type JsonObject, memberOf } from '../../attestation/json/value.ts'

/** What the gateway itself knows of a run, to hold a node's usage claim against. */
export type RunEvidence = {
  readonly requestBytes: number
  /** UTF-16 units of text in the answer. */
  readonly textLength: number
  readonly chunks: number
}

/** What chat templates and images may add to a prompt beyond a token per byte. */
export const PROMPT_TOKENS_EXTRA = 16_384
/** UTF-8 bytes per UTF-16 unit at most; and no token of text is shorter than a byte. */
const BYTES_PER_UNIT = 3
/** Tokens that end an answer and are counted by some backends. */
export const COMPLETION_TOKENS_EXTRA = 16

/**
 * A node's usage claim, made plausible: counts are integers from 0, no more prompt tokens than the request has bytes (plus
 * PROMPT_TOKENS_EXTRA), no more completion tokens than the answer's text has bytes (plus one per chunk and
 * COMPLETION_TOKENS_EXTRA), the total their sum, and details only counts within these. Null when it is no usage at all.
 *
 * It does NOT show that the counts are right: within the bounds a node may still claim several times too much.
 */
export function boundUsage(claim: JsonObject, evidence: RunEvidence): JsonObject | null {
  const prompt = countOf(memberOf(claim, 'prompt_tokens'))
  const completion = countOf(memberOf(claim, 'completion_tokens'))
  if (prompt === null || completion === null) return null
  const promptTokens = Math.min(prompt, evidence.requestBytes + PROMPT_TOKENS_EXTRA)
  const completionTokens = Math.min(completion, completionTokensMax(evidence))
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    ...detailsOf(claim, 'prompt_tokens_details', promptTokens),
    ...detailsOf(claim, 'completion_tokens_details', completionTokens),
  }
}

function completionTokensMax({ textLength, chunks }: RunEvidence): number {
  return textLength * BYTES_PER_UNIT + chunks + COMPLETION_TOKENS_EXTRA
}

function countOf(value: Json | undefined): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null
}

/** Details a backend counts, by whatever names; all but counts up to `max` is left out. */
function detailsOf(claim: JsonObject, name: string, max: number): JsonObject {
  const details = memberOf(claim, name)
  if (!isJsonObject(details)) return {}
  const counts = Object.entries(details).slice(0, DETAILS_MAX)
  return { [name]: Object.fromEntries(counts.filter(([, value]) => (countOf(value) ?? max + 1) <= max)) }
}

const DETAILS_MAX = 16
