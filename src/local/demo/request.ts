import { z } from 'zod'

export const jsonObject = z.record(z.string(), z.unknown())

export const contentSchema = z.union([
  z.string(),
  z.array(z.looseObject({ text: z.string().optional(), refusal: z.string().optional() })),
])

/** Parts that are not text are ignored. */
export function contentText(content: z.infer<typeof contentSchema>): string {
  if (typeof content === 'string') return content
  return content.map(({ text, refusal }) => text ?? refusal ?? '').join('')
}

/** Throws a DemoError that describes the first fault. */
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

  /** The error in the form of Anthropic's API. */
  toMessagesBody(): object {
    const types: Readonly<Record<number, string>> = {
      400: 'invalid_request_error',
      404: 'not_found_error',
      413: 'request_too_large',
    }
    const type = types[this.status] ?? 'api_error'
    return { type: 'error', error: { type, message: this.message } }
  }

  /** The error in the form of OpenAI's API. */
  toBody(): object {
    const type = this.status >= 500 ? 'server_error' : 'invalid_request_error'
    const { param = null, code = null } = this.#where
    return { error: { message: this.message, type, param, code } }
  }
}
