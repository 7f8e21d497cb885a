import type { KeptAnswer } from './compare-exchange.ts'
import { FormatError } from './errors.ts'
import { canonicalizeJson } from './json/canonical.ts'
import { formsOf } from './json/forms.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'

const { membersOf, objectOf } = formsOf('invalid_proof_file')

/** What `format` is in every file of a kept call. */
export const SAVED_PROOF_FORMAT = 'affidavit-proof'

/** A call as its caller kept it: the request that was sent, and the answer with its proof. */
export type SavedProof = { readonly request: JsonObject; readonly answer: KeptAnswer }

/**
 * Gives the text of a file that holds one call: `{ "format": "affidavit-proof", "version": 1,
 * "request", "answer" }`, or `chunks` in place of `answer` for a stream, all of them in their
 * order, the one with the proof included, and `"idempotent": true` when the call was sent with an
 * `Idempotency-Key`. Canonical JSON.
 */
export function writeSavedProof({ request, answer }: SavedProof): string {
  const said: JsonObject =
    answer.kind === 'whole'
      ? { answer: answer.answer }
      : {
          chunks: [...answer.chunks],
          ...(answer.idempotent === true ? { idempotent: true } : {}),
        }
  return `${canonicalizeJson({ format: SAVED_PROOF_FORMAT, version: 1, request, ...said })}\n`
}

/**
 * The call that attacker-controlled `json` holds. Read its text with parseExactJson. Throws
 * FormatError `unknown_proof_format`, `invalid_proof_file` naming the member.
 *
 * Does NOT prove anything: verifyRecord checks an answer, verifyStream the chunks of one.
 */
export function parseSavedProof(json: Json): SavedProof {
  const isOurs =
    isJsonObject(json) &&
    memberOf(json, 'format') === SAVED_PROOF_FORMAT &&
    memberOf(json, 'version') === 1
  if (!isOurs)
    throw new FormatError(
      'unknown_proof_format',
      `expected format ${SAVED_PROOF_FORMAT}, version 1`,
    )
  const said = Object.hasOwn(json, 'chunks') ? 'chunks' : 'answer'
  const isIdempotent = said === 'chunks' && memberOf(json, 'idempotent') === true
  const members = membersOf(json, 'the proof', [
    ...(['format', 'version', 'request', said] as const),
    ...(isIdempotent ? (['idempotent'] as const) : []),
  ])
  const request = objectOf(members.request, 'request')
  if (said === 'answer')
    return { request, answer: { kind: 'whole', answer: objectOf(members[said], said) } }
  const chunks = members[said]
  if (!isJsonArray(chunks))
    throw new FormatError('invalid_proof_file', 'expected chunks to be an array')
  return {
    request,
    answer: {
      kind: 'stream',
      chunks: chunks.map((chunk, at) => objectOf(chunk, `chunks.${at}`)),
      ...(isIdempotent ? { idempotent: true } : {}),
    },
  }
}
