import type { KeptAnswer } from './compare-exchange.ts'
import { FormatError } from './errors.ts'
import { canonicalizeJson } from './json/canonical.ts'
import { formsOf } from './json/forms.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'

const { arrayOf, membersOf, objectOf } = formsOf('invalid_proof_file')

/** The value of `format` in every file of a saved call. */
export const SAVED_PROOF_FORMAT = 'affidavit-proof'

/**
 * A call that its caller kept: the request, and the answer with its proof. `bundle`: the evidence,
 * which exists once a block has the anchor. With it, the file needs no gateway.
 */
export type SavedProof = {
  readonly request: JsonObject
  readonly answer: KeptAnswer
  readonly bundle?: JsonObject
}

/**
 * Writes the file for one call as canonical JSON: `{ "format": "affidavit-proof", "version": 1,
 * "request", "answer" }`. For a stream, `chunks` replaces `answer`: all chunks in order, with the
 * proof. `"idempotent": true`: the call was sent with an `Idempotency-Key`. With `bundle`, the
 * version is 2.
 */
export function writeSavedProof({ request, answer, bundle }: SavedProof): string {
  const said: JsonObject =
    answer.kind === 'whole'
      ? { answer: answer.answer }
      : {
          chunks: [...answer.chunks],
          ...(answer.idempotent === true ? { idempotent: true } : {}),
        }
  const completed: JsonObject = bundle === undefined ? { version: 1 } : { version: 2, bundle }
  return `${canonicalizeJson({ format: SAVED_PROOF_FORMAT, ...completed, request, ...said })}\n`
}

/**
 * Reads the call in attacker-controlled `json` (read its text with parseExactJson). Throws
 * FormatError `unknown_proof_format`, `invalid_proof_file` naming the member. Does NOT prove
 * anything: verifyRecord checks an answer, verifyStream checks chunks, verifyBundle checks the
 * bundle, and compareExchange checks that the bundle belongs to this call.
 */
export function parseSavedProof(json: Json): SavedProof {
  const version = isJsonObject(json) ? memberOf(json, 'version') : null
  const isOurs =
    isJsonObject(json) &&
    memberOf(json, 'format') === SAVED_PROOF_FORMAT &&
    (version === 1 || version === 2)
  if (!isOurs)
    throw new FormatError(
      'unknown_proof_format',
      `expected format ${SAVED_PROOF_FORMAT}, version 1 or 2`,
    )
  const said = Object.hasOwn(json, 'chunks') ? 'chunks' : 'answer'
  const isIdempotent = said === 'chunks' && memberOf(json, 'idempotent') === true
  const members = membersOf(json, 'the proof', [
    'format',
    'version',
    'request',
    said,
    ...(isIdempotent ? (['idempotent'] as const) : []),
    ...(version === 2 ? (['bundle'] as const) : []),
  ])
  const { request, bundle } = members
  return {
    request: objectOf(request, 'request'),
    answer: readAnswer(members[said], isIdempotent ? { said, idempotent: true } : { said }),
    ...(version === 2 ? { bundle: objectOf(bundle, 'bundle') } : {}),
  }
}

function readAnswer(
  value: Json | undefined,
  { said, ...more }: { readonly said: 'answer' | 'chunks'; readonly idempotent?: true },
): KeptAnswer {
  if (said === 'answer') return { kind: 'whole', answer: objectOf(value, said) }
  const chunks = arrayOf(value, said).map((chunk, at) => objectOf(chunk, `chunks.${at}`))
  return { kind: 'stream', chunks, ...more }
}
