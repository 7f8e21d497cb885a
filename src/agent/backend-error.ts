import { type Refusal, readRefusal } from '../../enclave/protocol/refusal.ts'
import { FAULT_MESSAGE_LENGTH_MAX, FAULT_STATUS_CODES } from '../nodes/protocol/frames.ts'

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

  /**
   * `status`: the backend's status or error code. A status that frames cannot carry becomes 500.
   */
  constructor(
    message: string,
    status = 500,
    retryAfterSeconds: number | null = null,
    reason = message,
  ) {
    super(
      message.length > FAULT_MESSAGE_LENGTH_MAX
        ? `${message.slice(0, FAULT_MESSAGE_LENGTH_MAX)}…`
        : message,
    )
    this.statusCode = FAULT_STATUS_CODES.has(status) ? status : 500
    this.retryAfterSeconds = retryAfterSeconds
    this.reason = reason
  }
}

/** `body` is attacker-controlled. */
export function refusalError(answer: {
  readonly status: number
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: Uint8Array
  readonly secret?: string | null
}): BackendError {
  const { status, headers } = answer
  const { message, code, retryAfterSeconds } = readRefusal(answer)
  if (status === 200)
    return backendErrorOf({
      message: message ?? `the backend's answer has the wrong content type: ${typeOf(headers)}`,
      code,
    })
  const wait = retryAfterSeconds === null ? null : Math.ceil(retryAfterSeconds)
  // Some backends answer 500 and write the real status into the body.
  const meant = status === 500 && code !== null && FAULT_STATUS_CODES.has(Number(code))
  const reason = `the backend answered with status ${status}`
  // 429 is the protocol's only status for a backend that is at its limit.
  const told = wait !== null && BUSY.has(status) ? 429 : status
  return new BackendError(message ?? reason, meant ? Number(code) : told, wait, reason)
}

/** With a wait, these statuses mean that the backend takes no more calls for that time. */
const BUSY: ReadonlySet<number> = new Set([503, 529])

/** Returns the error in a stream's chunk, or in a whole answer sent instead of a stream. */
export function backendErrorOf({ message, code }: Pick<Refusal, 'message' | 'code'>): BackendError {
  const reason = 'the backend answered with an error'
  return new BackendError(message ?? reason, Number(code ?? 500), null, reason)
}

/**
 * True if the answer is a page, or JSON although a stream was requested, or a stream although none
 * was requested.
 */
export function isOtherThanAsked(
  headers: Readonly<Record<string, unknown>>,
  isStream: boolean,
): boolean {
  const others = isStream
    ? /^\s*(application\/([\w.-]+\+)?json|text\/html)\b/i
    : /^\s*text\/(event-stream|html)\b/i
  return others.test(typeOf(headers))
}

function typeOf(headers: Readonly<Record<string, unknown>>): string {
  const type = headers['content-type']
  return typeof type === 'string' ? type.slice(0, 100) : 'something without a content type'
}
