import type { z } from 'zod'

/** Gives what a body's JSON says, or throws the DemoError that says what is wrong with it. */
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

/** A request that the demo provider refuses, in the terms of OpenAI's error envelope. */
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

  /** Gives the body to answer with. */
  toBody(): object {
    const type = this.status >= 500 ? 'server_error' : 'invalid_request_error'
    const { param = null, code = null } = this.#where
    return { error: { message: this.message, type, param, code } }
  }
}
