import { parseLenientJson } from '#attestation/json/parse-lenient.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'

/** Maximum lengths of the message and the code of a refusal, characters. */
export const REFUSAL_MESSAGE_CHARACTERS_MAX = 2_000
export const REFUSAL_CODE_CHARACTERS_MAX = 100

/** Maximum number of bytes that are read from a refusal's body. */
export const REFUSAL_BYTES_MAX = 1024 * 1024

/** Longer waits are shortened to this. */
export const RETRY_BELIEVED_SECONDS_MAX = 86_400

/** The reason that a service states for an error. The service controls its content. */
export type Reason = {
  /** Printable and limited in length. Null if the service states no reason. */
  readonly message: string | null
  readonly code: string | null
  readonly type: string | null
  /** The request's member that the service blames. */
  readonly param: string | null
  /** The HTTP status, 400 to 599, that the error states in its body. Null without one. */
  readonly status: number | null
}

/** The refusal from a provider, a backend or another service. */
export type Refusal = Reason & {
  /** The wait that the service asks for, with fractions. Null if it asks for none. */
  readonly retryAfterSeconds: number | null
  /** False if the service states that a retry does not help (`x-should-retry`). */
  readonly mayRetry: boolean
}

/**
 * Reads the message and the wait in the answer of a service that refuses a call. Understands every
 * usual form of message. The answer is attacker-controlled. Never throws.
 */
export function readRefusal(answer: {
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: Uint8Array
  /** Text to leave out of the message. Some services repeat the key that they refuse. */
  readonly secret?: string | null
}): Refusal {
  const { headers, body, secret = null } = answer
  const { 'content-encoding': coding } = headers
  const isPlain = coding === undefined || coding === '' || coding === 'identity'
  const text = isPlain
    ? new TextDecoder().decode(body)
    : `its answer is compressed (${String(coding).slice(0, 40)})`
  return {
    ...readReason(readBody(secret === null ? text : text.replaceAll(secret, '[credential]'))),
    retryAfterSeconds: readWait(headers),
    mayRetry: headers['x-should-retry'] !== 'false',
  }
}

/**
 * Returns the reason in an error's JSON. Accepts `{error: {message, code | type}}` (OpenAI),
 * this form with `metadata.raw` (OpenRouter), `{error: text}`, `{error, message}` with a title or a
 * flag as `error`, `{message}` with a text or an object (Mistral), `{detail}` with a text or a list
 * (FastAPI), `{errors}`, the further NAMES, a text alone, and an array that contains one of these
 * values (Google).
 */
export function readReason(body: Json): Reason {
  const outer = isJsonArray(body) ? (body[0] ?? null) : body
  const { error = null, ...others } = isJsonObject(outer) ? outer : { error: outer }
  const source = isJsonObject(error) ? error : others
  const codes = [source.code, source.type, source.status]
  const code = codes.find((one) => typeof one === 'string' && one !== '') ?? codes.find(isCode)
  const inner = wordsOf(error, 0)
  const isTitle = typeof error === 'string' || inner === ''
  const parts = new Set([inner, isTitle ? wordsOf(others, 0) : ''])
  const message = [...parts].filter((part) => part !== '').join(': ')
  const stated = [source.code, source.status, source.status_code].map(Number)
  const word = [source.code, source.type].find((one) => STATUSES.has(String(one)))
  return {
    message: message === '' ? null : printable(message, REFUSAL_MESSAGE_CHARACTERS_MAX),
    code: wordIn(code),
    type: wordIn(typeof source.type === 'string' ? source.type : null),
    param: wordIn(typeof source.param === 'string' ? source.param : null),
    status: stated.find((one) => one >= 400 && one < 600) ?? STATUSES.get(String(word)) ?? null,
  }
}

function wordIn(value: Json | undefined): string | null {
  const word = isCode(value) ? printable(String(value), REFUSAL_CODE_CHARACTERS_MAX) : ''
  return word === '' ? null : word
}

/** The HTTP statuses of the codes and types of errors that come in a stream or with status 200. */
const STATUSES: ReadonlyMap<string, number> = new Map([
  ['context_length_exceeded', 400],
  ['invalid_prompt', 400],
  ['invalid_request_error', 400],
  ['request_too_large', 413],
  ['insufficient_quota', 429],
  ['rate_limit_error', 429],
  ['rate_limit_exceeded', 429],
  ['overloaded_error', 529],
])

/**
 * Returns the reason of an error that comes in the place of an answer, an event or a choice. Null
 * for anything else. `isBegun`: a part of the answer came before, so other words are no error
 * unless the object says so.
 */
export function errorIn(body: Json, isBegun = false): Reason | null {
  const data = isJsonArray(body) ? (body[0] ?? null) : body
  if (!isJsonObject(data)) return wordedReason(data)
  const { error = null, choices = null } = data
  const failed = isJsonArray(choices) ? (choices.find(hasError) ?? null) : null
  if (error !== null || failed !== null) return readReason(error === null ? failed : data)
  if (isBegun && data.object !== 'error') return null
  const isAnswer = ANSWERS.some((name) => (data[name] ?? null) !== null)
  return isAnswer || data.object === 'chat.completion.chunk' ? null : wordedReason(data)
}

function wordedReason(body: Json): Reason | null {
  const reason = readReason(body)
  return reason.message === null ? null : reason
}

export const NO_REASON = 'no reason given'

/** Members of answers and their events. Data with one of these is not an error. */
const ANSWERS = ['choices', 'content', 'output', 'usage'] as const

function hasError(choice: Json): choice is JsonObject {
  return isJsonObject(choice) && isJsonObject(choice.error)
}

/** Returns the first message in a value. The messages in a list are joined. */
function wordsOf(value: Json | undefined, depth: number): string {
  if (typeof value === 'string') return value.trim()
  if (depth > DEPTH_MAX) return ''
  if (isJsonArray(value))
    return value
      .slice(0, LIST_MAX)
      .map((item) => wordsOf(item, depth + 1))
      .filter((words) => words !== '')
      .join('; ')
  if (!isJsonObject(value)) return ''
  const words = NAMES.map((name) => wordsOf(value[name], depth + 1)).find((said) => said !== '')
  const { metadata, loc } = value
  const raw = isJsonObject(metadata) ? wordsOf(parseText(metadata.raw), depth + 1) : ''
  const place = isJsonArray(loc) ? loc.filter(isCode).join('.') : ''
  return [place, words ?? '', raw].filter((part) => part !== '').join(': ')
}

const NAMES = [
  'message',
  'msg',
  'detail',
  'error',
  'errors',
  'error_description',
  'title',
  // Baidu, AWS, Apigee and MiniMax.
  'error_msg',
  'Message',
  'fault',
  'faultstring',
  'base_resp',
  'status_msg',
] as const
const DEPTH_MAX = 6
const LIST_MAX = 8

function isCode(value: Json | undefined): value is string | number {
  return (typeof value === 'string' && value !== '') || typeof value === 'number'
}

/** Parses text as JSON, because some services pass on another service's answer in a text. */
function parseText(text: Json | undefined): Json {
  if (typeof text !== 'string') return text ?? null
  try {
    return parseLenientJson(text)
  } catch {
    return text
  }
}

function readBody(text: string): Json {
  if (/^\s*</.test(text)) return 'it answered with an HTML page'
  return parseText(text)
}

/**
 * Reads `retry-after-ms`, or `retry-after` in seconds (with fractions) or as a date, relative to
 * the answer's own date.
 */
function readWait(headers: Readonly<Record<string, unknown>>): number | null {
  const { 'retry-after-ms': ms, 'retry-after': wait, date } = headers
  if (typeof ms === 'string' && DECIMAL.test(ms)) return bound(Number(ms) / 1000)
  if (typeof wait !== 'string') return null
  if (DECIMAL.test(wait)) return bound(Number(wait))
  const seconds = (Date.parse(wait) - Date.parse(String(date))) / 1000
  return Number.isNaN(seconds) || /^[-\d]/.test(wait) ? null : bound(seconds)
}

const DECIMAL = /^\d{1,12}(\.\d{1,12})?$/

function bound(seconds: number): number {
  return Math.min(Math.max(Math.ceil(seconds * 1000) / 1000, 0), RETRY_BELIEVED_SECONDS_MAX)
}

/** Makes untrusted text safe for a log or a message: removes control characters. */
function printable(text: string, charactersMax: number): string {
  return text.slice(0, charactersMax).toWellFormed().replaceAll(/\p{C}/gu, ' ').trim()
}
