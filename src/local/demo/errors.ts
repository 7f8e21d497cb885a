/** A request the demo provider refuses, in the terms of OpenAI's error envelope. */
export class DemoError extends Error {
  readonly status: number
  readonly code: string | null
  readonly param: string | null

  constructor(fault: { status: number; message: string; code?: string; param?: string }) {
    super(fault.message)
    this.status = fault.status
    this.code = fault.code ?? null
    this.param = fault.param ?? null
  }

  /** Gives the body to answer with. */
  toBody(): {
    error: { message: string; type: string; param: string | null; code: string | null }
  } {
    const type = this.status >= 500 ? 'server_error' : 'invalid_request_error'
    return { error: { message: this.message, type, param: this.param, code: this.code } }
  }
}
