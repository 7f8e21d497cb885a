import type { Json } from '../../json/value.ts'
import { invalidChunk } from './chunk-forms.ts'

/** Why a choice ended: one of five reasons, and the sender's word if it differs. */
export type FinishReason = { readonly reason: string; readonly word: string | null }

/**
 * Reads a finish_reason (attacker-controlled). Returns null while the choice continues: some
 * backends then send an empty text. An unknown word means `stop` and is returned too. Throws
 * FormatError `invalid_chunk` for another type, or for a word that means an incomplete answer.
 */
export function readFinishReason(given: Json | undefined): FinishReason | null {
  if (given === undefined || given === null || given === '') return null
  if (typeof given !== 'string') throw invalidChunk('expected finish_reason to be a string or null')
  const known = REASONS.get(given.toLowerCase())
  const reason = known ?? (FILTERED.test(given) ? 'content_filter' : 'stop')
  if (BROKEN_OFF.test(given))
    throw invalidChunk('expected a whole answer, got a finish_reason that says it broke off')
  return { reason, word: reason === given ? null : given }
}

/** Matches, for example, `content_filter: RECITATION` from Google's endpoint. */
const FILTERED = /content_filter|safety|sensitive|refusal|blocklist|prohibited|recitation|spii/i

/** Matches, e.g., `insufficient_system_resource` (DeepSeek), `function_call_filter` (Google). */
const BROKEN_OFF =
  /abort|cancel|error|fail|function_call_filter|insufficient|interrupt|malformed|timed?_?out/i

const REASONS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    length: [
      'length',
      'max_length',
      'max_tokens',
      'max_output_tokens',
      'model_length',
      'model_context_window_exceeded',
    ],
    tool_calls: ['tool_calls', 'tool_call', 'tool_use'],
    function_call: ['function_call'],
  }).flatMap(([reason, words]) => words.map((word) => [word, reason] as const)),
)
