export type EndpointErrorCode = 'unreachable' | 'timeout' | 'refused' | 'bad_answer' | 'answer_too_large'

/** What a service said when it refused. All of it is the service's; `message` is printable and short, or empty. */
export type EndpointRefusal = {
  readonly status: number
  readonly message: string
  readonly code: string | null
  readonly retryAfterSeconds: number | null
}

/** A configured service gave no answer. `message` is for the operator's log, and holds no key and no word of a request. */
export class EndpointError extends Error {
  override readonly name = 'EndpointError'
  readonly code: EndpointErrorCode
  /** With `refused` alone. */
  readonly refusal: EndpointRefusal | null

  constructor(code: EndpointErrorCode, message: string, refusal: EndpointRefusal | null = null) {
    super(message)
    this.code = code
    this.refusal = refusal
  }
}
