import { z } from 'zod'
import { type AskedTurn, type Question, readTurns } from './choices.ts'
import { contentSchema, contentText, jsonObject, parseBody } from './request.ts'

/** OpenAI's limit. */
const CHOICES_MAX = 128

const message = z.looseObject({
  role: z.enum(['developer', 'system', 'user', 'assistant', 'tool', 'function']),
  content: contentSchema.nullish(),
})
const callable = z.looseObject({ name: z.string().min(1), parameters: jsonObject.nullish() })
const named = z.looseObject({ name: z.string() })
const jsonSchema = z.looseObject({
  name: z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/),
  schema: jsonObject.nullish(),
})

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
    response_format: z
      .discriminatedUnion('type', [
        z.looseObject({ type: z.literal(['text', 'json_object']) }),
        z.looseObject({ type: z.literal('json_schema'), json_schema: jsonSchema }),
      ])
      .nullish(),
    tools: z.array(z.looseObject({ type: z.literal('function'), function: callable })).nullish(),
    tool_choice: z
      .union([z.enum(['none', 'auto', 'required']), z.looseObject({ function: named })])
      .nullish(),
    parallel_tool_calls: z.boolean().nullish(),
    functions: z.array(callable).nullish(),
    function_call: z.union([z.enum(['none', 'auto']), named]).nullish(),
  })
  .refine((body) => body.top_logprobs == null || body.logprobs === true, {
    path: ['top_logprobs'],
    error: 'top_logprobs needs logprobs to be true',
  })
  .refine((body) => body.stream_options == null || body.stream === true, {
    path: ['stream_options'],
    error: 'stream_options may only be set when stream is true',
  })

/** Unknown members are kept. */
export type DemoChatRequest = z.infer<typeof requestSchema>

/** Throws DemoError. */
export const parseChatRequest = (body: Uint8Array): DemoChatRequest =>
  parseBody(requestSchema, body)

/** True if the request uses `functions`, the older form of `tools`. */
export function usesFunctions({ tools, functions }: DemoChatRequest): boolean {
  return !tools?.length && Boolean(functions?.length)
}

export function questionOfChat(request: DemoChatRequest, index: number): Question {
  const { messages, stop, seed = null, tool_choice: toolChoice } = request
  const isOlder = usesFunctions(request)
  return {
    model: request.model,
    ...readTurns(messages.map(turnOf)),
    tools: isOlder ? (request.functions ?? []) : (request.tools ?? []).map((tool) => tool.function),
    toolChoice:
      (isOlder
        ? request.function_call
        : typeof toolChoice === 'object'
          ? toolChoice?.function
          : toolChoice) ?? 'auto',
    callsMax: isOlder || request.parallel_tool_calls === false ? 1 : Number.POSITIVE_INFINITY,
    format: formatOf(request),
    stops: [stop ?? []].flat().filter((text) => text !== ''),
    tokensMax: request.max_completion_tokens ?? request.max_tokens ?? Number.POSITIVE_INFINITY,
    seed: JSON.stringify([messages, seed, index]),
  }
}

function turnOf({ role, content }: DemoChatRequest['messages'][number]): AskedTurn {
  const isTool = role === 'tool' || role === 'function'
  return {
    kind: isTool ? 'tool' : role === 'user' ? role : 'other',
    text: contentText(content ?? ''),
  }
}

function formatOf({ response_format: format }: DemoChatRequest): Question['format'] {
  if (format?.type === 'json_object') return { schema: null }
  return format?.type === 'json_schema' ? { schema: format.json_schema.schema ?? {} } : null
}
