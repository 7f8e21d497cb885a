import type { Json } from '../../json/value.ts'
import { invalidChunk } from './chunk-forms.ts'

/** Why a choice ended: one of five reasons, and the sender's word if it differs. */
export type FinishReason = { readonly reason: string; readonly word: string | null }

/**
 * Reads a finish_reason (attacker-controlled). Returns null while the choice continues: some
 * backends then send an empty text. The first rule of RULES whose pattern matches the word decides;
 * any other word means `stop`. A word that is not the reason itself is returned too. Throws
 * FormatError `invalid_chunk` for another type, or for a word that means an incomplete answer.
 */
export function readFinishReason(given: Json | undefined): FinishReason | null {
  if (given === undefined || given === null || given === '') return null
  if (typeof given !== 'string') throw invalidChunk('expected finish_reason to be a string or null')
  const word = given
    .trim()
    .replaceAll(/([a-z\d])([A-Z])/g, '$1_$2')
    .toLowerCase()
    .replaceAll(/[-\s]/g, '_')
  if (BROKEN_OFF.test(word))
    throw invalidChunk('expected a whole answer, got a finish_reason that says it broke off')
  const reason = RULES.find(([, pattern]) => pattern.test(word))?.[0] ?? 'stop'
  return { reason, word: reason === given ? null : given }
}

/** Matches, e.g., `insufficient_system_resource` (DeepSeek), `function_call_filter` (Google). */
const BROKEN_OFF =
  /abort|cancel|error|fail|function_call_filter|insufficient|interrupt|malformed|timed?_?out/

/** Patterns of words in lower case, with `_` between their parts: `tool_use` for `toolUse`. */
const RULES: readonly (readonly [string, RegExp])[] = [
  ['tool_calls', /^tool_?(calls?|use)$/],
  ['function_call', /^function_?call$/],
  // For example `content_filter: RECITATION` (Google), `guardrail_intervened` (Bedrock).
  [
    'content_filter',
    /filter|safety|sensitive|refusal|blocklist|prohibited|recitation|spii|guardrail|moderation/,
  ],
  // For example `max_tokens`, `token_limit` (watsonx), `context_length_exceeded`.
  ['length', /length|limit|max|context|not_finished/],
]
