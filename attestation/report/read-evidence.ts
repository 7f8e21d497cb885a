import { type KeptAnswer, type KeptExchange, keptProofOf } from '../compare-exchange.ts'
import { PROOF_MEMBER } from '../dialects/dialect.ts'
import { dialectOfRequest, eventDialectOf } from '../dialects/dialects.ts'
import { splitNamedEvents } from '../dialects/event-text.ts'
import { readKeptStream } from '../dialects/kept-stream.ts'
import { FormatError } from '../errors.ts'
import { parseEvidenceBundle } from '../evidence/bundle.ts'
import { readEvidenceArray, readEvidenceLines } from '../evidence/evidence-lines.ts'
import { streamIn } from '../evidence/kept-events.ts'
import { JsonError, type JsonErrorCode } from '../json/json-error.ts'
import { parseExactJson, parseStrictJson } from '../json/parse-strict.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '../json/value.ts'
import { splitEvents } from '../verify-stream.ts'
import { isHtml, readEvidencePage } from './evidence-page.ts'
import { BYTE_ORDER_MARK, nameFormat } from './name-format.ts'

export type EvidenceCode =
  | 'not_json' //          it is not JSON at all
  | 'not_evidence' //      it does not have a form that can be checked
  | 'request_missing' //   an answer without its request
  | 'request_twice' //     a request beside evidence with the answer, which has the request too
  | 'answer_unfit' //      the kept answer does not have the form of an answer
  | 'answer_twice' //      two answers
  | 'several_records' //   a page of records, or a session, with a request or answer of one call

/** The files cannot be checked. The caller can choose other files. */
export class EvidenceError extends FormatError {
  override readonly name = 'EvidenceError'
  declare readonly code: EvidenceCode

  constructor(code: EvidenceCode, message: string) {
    super(code, message)
  }
}

/** One item to check: a stored record, or an answer that its caller kept with its request. */
export type Subject = {
  /** The record, or the object with the proof of the answer. */
  readonly record: Json
  readonly kept?: { readonly request: Json; readonly answer: KeptAnswer }
}

/** What is checked: the evidence of one call, of several calls or of a session, or records. */
export type Evidence =
  | { readonly kind: 'bundle'; readonly bundle: JsonObject }
  | { readonly kind: 'records'; readonly subjects: readonly Subject[] }
  | { readonly kind: 'session'; readonly calls: readonly JsonObject[] }

/**
 * Reads the evidence in attacker-controlled `input`: evidence of a call (it has a `format`), or of
 * several in JSON Lines, a stored record, a page of the history (each of its records), an answer of
 * the verified endpoint, or the unchanged event stream of an answer. An answer or a stream needs
 * `requestBody`. A saved page may contain any of these except a stream. `idempotent`: true if the
 * call of an event stream was sent with an `Idempotency-Key`. Throws EvidenceError for other input.
 */
export function readEvidence(
  input: Uint8Array,
  requestBody: Uint8Array | null,
  idempotent = false,
): Evidence {
  if (isEventStream(input)) {
    const subject = readStream(input, readRequest(requestBody), idempotent)
    return { kind: 'records', subjects: [subject] }
  }
  if (isHtml(input)) return readPage(input, requestBody)
  const calls = withEvidenceError(() => readEvidenceLines(input))
  if (calls !== null) return evidenceOf(calls)
  return readValue(readJson(input, 'the input'), requestBody)
}

function evidenceOf(calls: readonly JsonObject[]): Evidence {
  const [bundle] = calls
  return bundle !== undefined && calls.length === 1
    ? { kind: 'bundle', bundle }
    : { kind: 'session', calls }
}

/** A page has the evidence of several calls as an array, because it has no line ends. */
function readPage(page: Uint8Array, requestBody: Uint8Array | null): Evidence {
  const value = readJson(evidenceIn(page), 'the input')
  if (!isJsonArray(value)) return readValue(value, requestBody)
  if (value.length === 0) throw unfit('expected evidence in the page')
  return evidenceOf(withEvidenceError(() => readEvidenceArray(value)))
}

function readValue(value: Json, requestBody: Uint8Array | null): Evidence {
  if (!isJsonObject(value)) throw unfit('expected the input to be a JSON object')
  if (memberOf(value, 'format') !== undefined) return { kind: 'bundle', bundle: value }
  return { kind: 'records', subjects: findSubjects(value, requestBody) }
}

/** The evidence in a saved page. The page itself proves nothing. */
function evidenceIn(page: Uint8Array): Uint8Array {
  const { evidence } = withEvidenceError(() => readEvidencePage(page))
  if (evidence === null)
    throw unfit('this is the page that checks evidence, and no evidence is in it')
  return evidence
}

function subjectOf(request: Json, answer: KeptAnswer): Subject {
  const record = keptProofOf(answer, dialectOfRequest(request))
  return { record, kept: { request, answer } }
}

export type KeptFiles = {
  readonly requestBody: Uint8Array | null
  readonly answer: KeptAnswer | null
  /** If the answer was passed as evidence: the request in this evidence. Otherwise null. */
  readonly savedRequest: Json | null
}

/** `request` is the body that was sent. Throws EvidenceError. */
export function readKeptFiles(given: {
  readonly request: Uint8Array | null
  readonly answer: Uint8Array | null
  /** Same as in readEvidence. */
  readonly idempotent?: boolean
}): KeptFiles {
  const kept = given.answer && readKeptAnswer(given.answer, given.idempotent === true)
  const savedRequest = kept?.request ?? null
  if (given.request !== null && savedRequest !== null) throw requestTwice()
  return { requestBody: given.request, answer: kept?.answer ?? null, savedRequest }
}

/** Throws EvidenceError for a request that is not JSON. */
export function keptOf({ requestBody, answer, savedRequest }: KeptFiles): KeptExchange {
  return {
    ...(savedRequest === null ? {} : { request: savedRequest }),
    ...(requestBody === null ? {} : { request: readKeptRequest(requestBody) }),
    ...(answer === null ? {} : { answer }),
  }
}

function requestTwice(): EvidenceError {
  return new EvidenceError('request_twice', 'the evidence with the answer also has the request')
}

/**
 * Reads the kept answer in a file: an answer as JSON, its unchanged event stream, or evidence,
 * which also has the request. Throws EvidenceError for other content, including a record.
 */
function readKeptAnswer(
  input: Uint8Array,
  idempotent: boolean,
): {
  readonly answer: KeptAnswer
  /** Null if the file has no request. */
  readonly request: Json | null
} {
  if (isEventStream(input))
    return {
      answer: readKeptEvents(input, { isNamed: isNamedStream(input), idempotent }),
      request: null,
    }
  const answer = readJson(input, 'the answer')
  if (isJsonObject(answer) && memberOf(answer, 'format') !== undefined) return keptIn(answer)
  if (!isJsonObject(answer) || !isAnswer(answer))
    throw new EvidenceError(
      'answer_unfit',
      'expected the answer as JSON, its event stream, or evidence that has it',
    )
  return { answer: { kind: 'whole', answer }, request: null }
}

/** The texts in evidence that the client saved. */
function keptIn(evidence: JsonObject): {
  readonly answer: KeptAnswer
  readonly request: Json | null
} {
  const bundle = withEvidenceError(() => parseEvidenceBundle(evidence))
  const { record } = bundle
  const response = 'response' in record ? record.response : null
  const answer = streamIn(bundle) ?? (response && ({ kind: 'whole', answer: response } as const))
  if (answer === null) throw new EvidenceError('answer_unfit', 'the evidence has no answer')
  return { answer, request: 'request' in record ? record.request : null }
}

function readKeptRequest(input: Uint8Array): Json {
  return readJson(input, 'the request', parseStrictJson)
}

function findSubjects(value: JsonObject, requestBody: Uint8Array | null): readonly Subject[] {
  const page = memberOf(value, 'completions')
  if (isJsonArray(page)) {
    if (page.length === 0) throw unfit('the page has no records: there is nothing to check')
    return page.map((record) => ({ record }))
  }
  if (memberOf(value, 'request') !== undefined) return [{ record: value }]
  if (!isAnswer(value))
    throw unfit(
      'expected a record, a page of records, an answer of the verified endpoint, or evidence',
    )
  return [subjectOf(readRequest(requestBody), { kind: 'whole', answer: value })]
}

/** True for a chat completion, and for an answer whose proof is one member. */
function isAnswer(value: JsonObject): boolean {
  return memberOf(value, 'choices') !== undefined || isJsonObject(memberOf(value, PROOF_MEMBER))
}

/** True if attacker-controlled `input` begins like a stream of server-sent events. */
export function isEventStream(input: Uint8Array): boolean {
  const start = String.fromCharCode(...input.subarray(0, 16)).trimStart()
  return /^(data|event|id|retry)?:/.test(start)
}

function readRequest(body: Uint8Array | null): Json {
  if (body !== null) return readKeptRequest(body)
  throw new EvidenceError(
    'request_missing',
    'an answer does not contain its request: give the body that was sent',
  )
}

/** A kept stream, not verified. The record is the object with the proof. */
function readStream(input: Uint8Array, request: Json, idempotent: boolean): Subject {
  const dialect = dialectOfRequest(request)
  const isNamed = eventDialectOf(dialect) !== null
  const kept = readKeptEvents(input, { isNamed, idempotent })
  // No report can be made for a stream that is incomplete or that no enclave sends.
  if (kept.kind === 'events') withEvidenceError(() => readKeptStream(dialect, kept.events))
  const subject = subjectOf(request, kept)
  const { record } = subject
  if (memberAt(record, 'receipt') === undefined)
    throw unfit('expected the last chunk before [DONE], or the last event, to carry the proof')
  return subject
}

/** True if the events have names. Events of chats have no names, except an error. */
function isNamedStream(input: Uint8Array): boolean {
  // Only CR and LF end a line: the flag `m` would also find U+2028 within a chunk's text.
  return /(^|[\r\n])event:(?! ?error)/.test(new TextDecoder().decode(input))
}

function readKeptEvents(
  input: Uint8Array,
  { isNamed, idempotent }: { readonly isNamed: boolean; readonly idempotent: boolean },
): KeptAnswer {
  if (!isNamed) return { kind: 'stream', chunks: readChunks(input), idempotent }
  const events = withEvidenceError(() => splitNamedEvents(input))
  return { kind: 'events', events, idempotent }
}

function readChunks(input: Uint8Array): readonly JsonObject[] {
  const texts = withEvidenceError(() => splitEvents(input))
  const encoder = new TextEncoder()
  const chunks = texts.map((text) => readJson(encoder.encode(text), 'a chunk'))
  if (!chunks.every(isJsonObject)) throw unfit('expected every chunk to be a JSON object')
  return chunks
}

function readJson(bytes: Uint8Array, what: string, parse = parseExactJson): Json {
  try {
    return parse(bytes)
  } catch (fault) {
    if (!(fault instanceof JsonError)) throw fault
    const format = nameFormat(bytes)
    const reason = format === null ? fault.message : `got ${format}`
    // A less strict parser reads JSON after a byte order mark.
    const isOther = NOT_JSON.has(fault.code) && format !== BYTE_ORDER_MARK
    if (isOther) throw new EvidenceError('not_json', `${what} is not JSON: ${reason}`)
    throw unfit(`${what} is not JSON with one meaning only: ${reason}`)
  }
}

const NOT_JSON: ReadonlySet<JsonErrorCode> = new Set(['syntax', 'invalid_utf8'])

/** Converts a format error of `parse` to an EvidenceError. Its message begins with `where`. */
function withEvidenceError<Value>(parse: () => Value, where = ''): Value {
  try {
    return parse()
  } catch (fault) {
    if (!(fault instanceof FormatError || fault instanceof JsonError)) throw fault
    throw unfit(where + fault.message)
  }
}

function unfit(message: string): EvidenceError {
  return new EvidenceError('not_evidence', message)
}
