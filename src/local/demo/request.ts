import { z } from 'zod'

/** Largest number of choices that one request may ask for, as at OpenAI. */
const CHOICES_MAX = 128

const part = z.looseObject({
  type: z.string(),
  text: z.string().optional(),
  refusal: z.string().optional(),
})

const call = z.looseObject({ name: z.string(), arguments: z.string() })

const message = z.looseObject({
  role: z.enum(['developer', 'system', 'user', 'assistant', 'tool', 'function']),
  content: z.union([z.string(), z.array(part)]).nullish(),
  name: z.string().nullish(),
  tool_calls: z.array(z.looseObject({ id: z.string(), function: call })).nullish(),
  function_call: call.nullish(),
})

const callable = z.looseObject({
  name: z.string().min(1),
  parameters: z.record(z.string(), z.unknown()).nullish(),
})

const responseFormat = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('text') }),
  z.looseObject({ type: z.literal('json_object') }),
  z.looseObject({
    type: z.literal('json_schema'),
    json_schema: z.looseObject({
      name: z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/),
      schema: z.record(z.string(), z.unknown()).nullish(),
    }),
  }),
])

const requestSchema = z
  .looseObject({
    model: z.string(),
    messages: z.array(message).min(1),
    n: z.int().min(1).max(CHOICES_MAX).nullish(),
    max_tokens: z.int().min(1).nullish(),
    max_completion_tokens: z.int().min(1).nullish(),
    stop: z.union([z.string(), z.array(z.string()).max(4)]).nullish(),
    seed: z.int().nullish(),
    stream: z.boolean().nullish(),
    stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
    logprobs: z.boolean().nullish(),
    top_logprobs: z.int().min(0).max(20).nullish(),
    temperature: z.number().min(0).max(2).nullish(),
    top_p: z.number().min(0).max(1).nullish(),
    frequency_penalty: z.number().min(-2).max(2).nullish(),
    presence_penalty: z.number().min(-2).max(2).nullish(),
    response_format: responseFormat.nullish(),
    tools: z.array(z.looseObject({ type: z.literal('function'), function: callable })).nullish(),
    tool_choice: z
      .union([
        z.enum(['none', 'auto', 'required']),
        z.looseObject({
          type: z.literal('function'),
          function: z.looseObject({ name: z.string() }),
        }),
      ])
      .nullish(),
    parallel_tool_calls: z.boolean().nullish(),
    functions: z.array(callable).nullish(),
    function_call: z
      .union([z.enum(['none', 'auto']), z.looseObject({ name: z.string() })])
      .nullish(),
  })
  .refine((body) => body.top_logprobs == null || body.logprobs === true, {
    path: ['top_logprobs'],
    error: 'top_logprobs needs logprobs to be true',
  })
  .refine((body) => body.stream_options == null || body.stream === true, {
    path: ['stream_options'],
    error: 'stream_options may only be set when stream is true',
  })

/** A chat completion request that passed the demo provider's checks. Unknown members are kept. */
export type DemoRequest = z.infer<typeof requestSchema>

/** A function that a request offers: a tool, or one of the older `functions`. */
export type Callable = z.infer<typeof callable>

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

/** Gives the request in a body, as parseBody does. */
export const parseDemoRequest = (body: Uint8Array): DemoRequest => parseBody(requestSchema, body)

/** Gives the text of a message: its string, or its text parts joined; others say nothing here. */
export function textOf({ content }: DemoRequest['messages'][number]): string {
  if (typeof content === 'string') return content
  return (content ?? []).map((item) => item.text ?? item.refusal ?? '').join('')
}

/** A request the demo provider refuses, in the terms of OpenAI's error envelope. */
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
