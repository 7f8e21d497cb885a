import { isJsonObject, type JsonObject, memberOf } from '#attestation/json/value.ts'
import { REFUSAL_BYTES_MAX, type Reason, readRefusal } from '#enclave/protocol/refusal.ts'
import {
  FAULT_MESSAGE_LENGTH_MAX,
  FAULT_STATUS_CODES,
  NOTHING_STATED,
  parseJson,
  type StatedError,
} from '../nodes/protocol/frames.ts'

/**
 * The backend refused the request or failed. `message` can quote the request, so it goes only to
 * the gateway and is never logged.
 */
export class BackendError extends Error {
  override readonly name = 'BackendError'
  /** One of FAULT_STATUS_CODES. */
  readonly statusCode: number
  /** Null if the backend stated no time. */
  readonly retryAfterSeconds: number | null
  /** For the log, without text from the backend. */
  readonly reason: string
  readonly stated: StatedError

  /**
   * `status`: the backend's status or error code. A status that frames cannot carry becomes 500.
   */
  constructor(
    message: string,
    status = 500,
    retryAfterSeconds: number | null = null,
    reason = message,
    stated: StatedError = NOTHING_STATED,
  ) {
    super(
      message.length > FAULT_MESSAGE_LENGTH_MAX
        ? `${message.slice(0, FAULT_MESSAGE_LENGTH_MAX)}…`
        : message,
    )
    this.statusCode = FAULT_STATUS_CODES.has(status) ? status : 500
    this.retryAfterSeconds = retryAfterSeconds
    this.reason = reason
    this.stated = stated
  }
}

/**
 * `body` is attacker-controlled, and its coding is undone. Status 200: the answer is another than
 * was asked for.
 */
export function refusalError(answer: {
  readonly status: number
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: Uint8Array
  readonly secret?: string | null
}): BackendError {
  const { status } = answer
  const { 'content-encoding': _, ...headers } = answer.headers
  const refusal = readRefusal({ ...answer, headers })
  const { message, status: stated, retryAfterSeconds } = refusal
  if (status === 200)
    return backendErrorOf({ ...refusal, message: otherThanAsked(headers, message) })
  const wait = retryAfterSeconds === null ? null : Math.ceil(retryAfterSeconds)
  // Some backends answer 500 and write the real status into the body.
  const meant = status === 500 && stated !== null && FAULT_STATUS_CODES.has(stated) ? stated : null
  const reason = `the backend answered with status ${status}`
  // 429 is the protocol's only status for a backend that is at its limit.
  const sent = wait !== null && BUSY.has(status) ? 429 : status
  return new BackendError(message ?? reason, meant ?? sent, wait, reason, statedIn(refusal, false))
}

/** With a wait, these statuses mean that the backend takes no more calls for that time. */
const BUSY: ReadonlySet<number> = new Set([503, 529])

/** Returns the error in a stream's chunk, or in a whole answer sent instead of a stream. */
export function backendErrorOf(stated: Reason, inStream = false): BackendError {
  const { message, status } = stated
  const reason = 'the backend answered with an error'
  return new BackendError(
    message ?? reason,
    status ?? 500,
    null,
    reason,
    statedIn(stated, inStream),
  )
}

function statedIn({ code, type, param }: Reason, inStream: boolean): StatedError {
  return { code, type, param, inStream }
}

/** An error's usual types, JSON and HTML, are not named beside its words. */
function otherThanAsked(headers: Readonly<Record<string, unknown>>, words: string | null): string {
  const type = typeOf(headers)
  if (words !== null && JSON_OR_PAGE.test(type)) return words
  const came = `the backend sent something else than was asked for (${type})`
  return words === null ? came : `${came}: ${words}`
}

/**
 * True if the JSON of a chunk or of a body states an error. In an `error` line of llama.cpp, it is
 * the error object itself. `isAnswer`: it has members of an answer too.
 */
export function statesError(value: JsonObject, isAnswer: boolean): boolean {
  if ((memberOf(value, 'error') ?? null) !== null) return true
  const isReason = typeof memberOf(value, 'message') === 'string'
  return !isAnswer && (isReason || (memberOf(value, 'detail') ?? null) !== null)
}

/**
 * Checks a whole answer with status 200 in any dialect, or of images. Throws BackendError if it is
 * not a JSON object, or only states an error. `body` is attacker-controlled.
 */
export function checkIsAnswer(answer: {
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: Uint8Array
  readonly secret: string | null
}): void {
  const body = answer.body.subarray(0, REFUSAL_BYTES_MAX)
  const text = new TextDecoder().decode(body)
  if (/^\s*\{/.test(text)) {
    const value = parseJson(text)
    // A longer answer is not parsed here.
    if (!isJsonObject(value) || ANSWER_MEMBERS.some((name) => Object.hasOwn(value, name))) return
    if (!statesError(value, false)) return
  }
  throw refusalError({ ...answer, status: 200, body })
}

/** Each answer has one of these members. A failed answer of Responses has `error` beside them. */
const ANSWER_MEMBERS = ['id', 'data', 'choices', 'output', 'content']

/**
 * True if the answer is a page, or JSON although a stream was requested, or a stream although none
 * was requested.
 */
export function isOtherThanAsked(
  headers: Readonly<Record<string, unknown>>,
  isStream: boolean,
): boolean {
  const others = isStream ? JSON_OR_PAGE : /^\s*text\/(event-stream|html)\b/i
  return others.test(typeOf(headers))
}

const JSON_OR_PAGE = /^\s*(application\/([\w.-]+\+)?json|text\/html)\b/i

function typeOf(headers: Readonly<Record<string, unknown>>): string {
  const type = headers['content-type']
  return typeof type === 'string' ? type.slice(0, 100) : 'no content type'
}
