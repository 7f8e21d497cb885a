import { invalidChunk } from '../chunk-forms.ts'
import type { Json } from '../json/value.ts'

/** Why a choice ended: one of the interface's five, and the other side's word where it differs. */
export type FinishReason = { readonly reason: string; readonly word: string | null }

/**
 * Reads a finish_reason (attacker-controlled): null while the choice goes on, which backends also
 * say as an empty text. A word that is not known here is `stop`, and kept; one that says that the
 * answer broke off is refused, so that it does not look whole. Throws FormatError `invalid_chunk`.
 */
export function readFinishReason(given: Json | undefined): FinishReason | null {
  if (given === undefined || given === null || given === '') return null
  if (typeof given !== 'string') throw invalidChunk('expected finish_reason to be a string or null')
  const reason = REASONS.get(given.toLowerCase()) ?? 'stop'
  if (reason === BROKEN_OFF)
    throw invalidChunk('expected a whole answer, got a finish_reason that says it broke off')
  return { reason, word: reason === given ? null : given }
}

const BROKEN_OFF = 'broken off'

const REASONS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    length: ['length', 'max_tokens', 'max_output_tokens', 'model_length'],
    tool_calls: ['tool_calls', 'tool_call', 'tool_use'],
    function_call: ['function_call'],
    content_filter: ['content_filter', 'content_filtered', 'safety', 'sensitive', 'refusal'],
    [BROKEN_OFF]: ['error', 'abort', 'aborted', 'cancelled', 'canceled', 'timeout'],
  }).flatMap(([reason, words]) => words.map((word) => [word, reason] as const)),
)
