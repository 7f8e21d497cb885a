import type { z } from 'zod'

/** Parses the JSON of a body. Throws a DemoError that describes the first fault. */
export function parseBody<Output>(schema: z.ZodType<Output>, body: Uint8Array): Output {
  let value: unknown
  try {
    value = JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString())
  } catch {
    throw new DemoError(400, 'The body of the request is not JSON.')
  }
  const { data, error } = schema.safeParse(value)
  if (data !== undefined) return data
  const [issue] = error?.issues ?? []
  const param = issue?.path.join('.') || 'body'
  throw new DemoError(400, `Invalid value for '${param}': ${issue?.message}.`, { param })
}

/** A request that the demo provider refuses. */
export class DemoError extends Error {
  readonly status: number
  readonly #where: { readonly param?: string; readonly code?: string }

  constructor(
    status: number,
    message: string,
    where: { readonly param?: string; readonly code?: string } = {},
  ) {
    super(message)
    this.status = status
    this.#where = where
  }

  /** Gives the body of the error's answer, in the form of Anthropic's API. */
  toMessagesBody(): object {
    const types: Readonly<Record<number, string>> = {
      400: 'invalid_request_error',
      404: 'not_found_error',
      413: 'request_too_large',
    }
    const type = types[this.status] ?? 'api_error'
    return { type: 'error', error: { type, message: this.message } }
  }

  /** Gives the body of the error's answer, in the form of OpenAI's API. */
  toBody(): object {
    const type = this.status >= 500 ? 'server_error' : 'invalid_request_error'
    const { param = null, code = null } = this.#where
    return { error: { message: this.message, type, param, code } }
  }
}
