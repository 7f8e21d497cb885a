import type { KeptAnswer } from './compare-exchange.ts'
import { FormatError } from './errors.ts'
import { canonicalizeJson } from './json/canonical.ts'
import { formsOf } from './json/forms.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from './json/value.ts'
import { parseUnanswered, type Unanswered } from './unanswered.ts'

const { arrayOf, membersOf, objectOf, textOf } = formsOf('invalid_proof_file')

/** The value of `format` in every file of a saved call. */
export const SAVED_PROOF_FORMAT = 'affidavit-proof'

/**
 * A call that its caller kept: the request, and the answer with its proof. `bundle` is the
 * evidence. The gateway has it only after the anchor is in a block. With `bundle`, the file can be
 * verified without a gateway.
 */
export type SavedProof = {
  readonly request: JsonObject
  readonly answer: KeptAnswer
  readonly bundle?: JsonObject
  /** Requests of this call without an answer. Absent: none. */
  readonly unanswered?: readonly Unanswered[]
}

/**
 * Writes the file for one call as canonical JSON: `{ "format": "affidavit-proof", "version": 1,
 * "request", "answer" }`. For a stream, `chunks` replaces `answer`: all chunks in order, with the
 * proof. For a stream of named events, `events` replaces `answer`, each as `{ "event", "data" }`.
 * `"idempotent": true`: the call was sent with an `Idempotency-Key`. `unanswered`: see Unanswered.
 * `bundle`: the evidence.
 */
export function writeSavedProof({ request, answer, bundle, unanswered = [] }: SavedProof): string {
  const said: JsonObject = {
    ...saidBy(answer),
    ...(answer.kind !== 'whole' && answer.idempotent === true ? { idempotent: true } : {}),
  }
  const lost: JsonObject =
    unanswered.length === 0 ? {} : { unanswered: unanswered.map((one) => ({ ...one })) }
  const completed: JsonObject = bundle === undefined ? {} : { bundle }
  return `${canonicalizeJson({ format: SAVED_PROOF_FORMAT, version: 1, ...completed, request, ...said, ...lost })}\n`
}

function saidBy(answer: KeptAnswer): JsonObject {
  switch (answer.kind) {
    case 'whole':
      return { answer: answer.answer }
    case 'stream':
      return { chunks: [...answer.chunks] }
    case 'events':
      return { events: answer.events.map(({ event, data }) => ({ event, data })) }
  }
}

/**
 * Reads the call in attacker-controlled `json` (read its text with parseExactJson). Throws
 * FormatError `unknown_proof_format`, `invalid_proof_file` naming the member. Does NOT prove
 * anything: verifyRecord checks an answer, verifyStream checks chunks, verifyBundle checks the
 * bundle, and compareExchange checks that the bundle belongs to this call.
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
  const said = (['chunks', 'events'] as const).find((name) => Object.hasOwn(json, name)) ?? 'answer'
  const isIdempotent = said !== 'answer' && memberOf(json, 'idempotent') === true
  const hasBundle = Object.hasOwn(json, 'bundle')
  const hasUnanswered = Object.hasOwn(json, 'unanswered')
  const members = membersOf(json, 'the proof', [
    'format',
    'version',
    'request',
    said,
    ...(isIdempotent ? (['idempotent'] as const) : []),
    ...(hasBundle ? (['bundle'] as const) : []),
    ...(hasUnanswered ? (['unanswered'] as const) : []),
  ])
  const { request, bundle, unanswered } = members
  return {
    request: objectOf(request, 'request'),
    answer: readAnswer(members[said], isIdempotent ? { said, idempotent: true } : { said }),
    ...(hasBundle ? { bundle: objectOf(bundle, 'bundle') } : {}),
    ...(hasUnanswered ? { unanswered: parseUnanswered(unanswered) } : {}),
  }
}

function readAnswer(
  value: Json | undefined,
  { said, ...more }: { readonly said: 'answer' | 'chunks' | 'events'; readonly idempotent?: true },
): KeptAnswer {
  if (said === 'answer') return { kind: 'whole', answer: objectOf(value, said) }
  const parts = arrayOf(value, said).map((part, at) => objectOf(part, `${said}.${at}`))
  if (said === 'chunks') return { kind: 'stream', chunks: parts, ...more }
  const events = parts.map((part, at) => {
    const { event, data } = membersOf(part, `events.${at}`, ['event', 'data'])
    return {
      event: textOf(event, `events.${at}.event`),
      data: objectOf(data, `events.${at}.data`),
    }
  })
  return { kind: 'events', events, ...more }
}
