import { isJsonObject, type Json, memberOf } from '../../attestation/json/value.ts'
import { FAULT_MESSAGE_LENGTH_MAX, FAULT_STATUS_CODES } from '../nodes/protocol/frames.ts'

/**
 * The backend refused or failed. `message` may quote the request, so it goes to the gateway and
 * into no log.
 */
export class BackendError extends Error {
  override readonly name = 'BackendError'
  /** One of FAULT_STATUS_CODES. */
  readonly statusCode: number
  /** After how many seconds the backend wants to be asked again; null: not told. */
  readonly retryAfterSeconds: number | null

  /**
   * `status` is the backend's HTTP status or error code, if it gave one; what the frames do not
   * know is a 500.
   */
  constructor(message: string, status = 500, retryAfterSeconds: number | null = null) {
    super(
      message.length > FAULT_MESSAGE_LENGTH_MAX
        ? `${message.slice(0, FAULT_MESSAGE_LENGTH_MAX)}…`
        : message,
    )
    this.statusCode = FAULT_STATUS_CODES.has(status) ? status : 500
    this.retryAfterSeconds = retryAfterSeconds
  }
}

/**
 * Gives the error that a backend's body tells, in OpenAI's form or the simpler ones of local
 * servers.
 */
export function readBackendError(
  body: Json | undefined,
  status: number,
  retryAfterSeconds: number | null = null,
): BackendError {
  const object = isJsonObject(body) ? body : {}
  const error = memberOf(object, 'error') ?? object
  if (typeof error === 'string') return new BackendError(error, status, retryAfterSeconds)
  const details = isJsonObject(error) ? error : {}
  const code = memberOf(details, 'code')
  const message = memberOf(details, 'message') ?? memberOf(details, 'detail')
  return new BackendError(
    typeof message === 'string' ? message : `the backend answered with status ${status}`,
    status === 500 && typeof code === 'number' ? code : status,
    retryAfterSeconds,
  )
}
