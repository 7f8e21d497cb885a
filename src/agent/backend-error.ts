/** Codes that an error frame may carry. Source: the public node client, which knows no others. */
export const STATUS_CODES: ReadonlySet<number> = new Set([400, 401, 403, 404, 409, 422, 429, 500])

/** Longest message that goes into an error frame, characters. */
export const ERROR_MESSAGE_LENGTH_MAX = 500

/** The backend refused or failed. `message` may quote the request, so it goes to the gateway and into no log. */
export class BackendError extends Error {
  override readonly name = 'BackendError'
  /** One of STATUS_CODES. */
  readonly statusCode: number
  /** After how many seconds the backend wants to be asked again; null: not told. */
  readonly retryAfterSeconds: number | null

  /** `status` is the backend's HTTP status or error code, if it gave one; what the frames do not know is a 500. */
  constructor(message: string, status = 500, retryAfterSeconds: number | null = null) {
    super(
      message.length > ERROR_MESSAGE_LENGTH_MAX ? `${message.slice(0, ERROR_MESSAGE_LENGTH_MAX)}…` : message,
    )
    this.statusCode = STATUS_CODES.has(status) ? status : 500
    this.retryAfterSeconds = retryAfterSeconds
  }
}
