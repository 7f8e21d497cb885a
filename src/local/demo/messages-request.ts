import { z } from 'zod'
import { type AskedTurn, countTokens, type Question, readTurns } from './choices.ts'
import { jsonObject, parseBody } from './request.ts'

type Block = {
  readonly type: string
  readonly text?: string | undefined
  readonly content?: string | readonly Block[] | null | undefined
}
const block: z.ZodType<Block> = z.lazy(() =>
  z.looseObject({
    type: z.string(),
    text: z.string().optional(),
    content: z.union([z.string(), z.array(block)]).nullish(),
  }),
)
const content = z.union([z.string(), z.array(block)])

/** The members whose tokens are counted. */
const countedSchema = z.looseObject({
  model: z.string(),
  messages: z
    .array(z.looseObject({ role: z.enum(['user', 'assistant', 'system']), content }))
    .min(1),
  system: content.nullish(),
})

const requestSchema = countedSchema.extend({
  max_tokens: z.int().min(1),
  stream: z.boolean().nullish(),
  stop_sequences: z.array(z.string()).nullish(),
  thinking: z.looseObject({ type: z.string() }).nullish(),
  // Provider-defined tool types have other members, which are not checked.
  tools: z
    .array(z.looseObject({ name: z.string().optional(), input_schema: jsonObject.nullish() }))
    .nullish(),
  tool_choice: z
    .looseObject({
      type: z.enum(['auto', 'any', 'tool', 'none']),
      name: z.string().optional(),
      disable_parallel_tool_use: z.boolean().nullish(),
    })
    .nullish(),
})

/** Unknown members are kept. */
export type MessagesRequest = z.infer<typeof requestSchema>

/** Throws DemoError. */
export const parseMessagesRequest = (body: Uint8Array): MessagesRequest =>
  parseBody(requestSchema, body)

export function countRequest(body: Uint8Array): { readonly input_tokens: number } {
  return { input_tokens: countInput(parseBody(countedSchema, body)) }
}

export function questionOfMessages(request: MessagesRequest): Question {
  const { messages, tool_choice: choice } = request
  return {
    model: request.model,
    ...readTurns(messages.flatMap(turnsOf)),
    tools: (request.tools ?? []).flatMap(({ name, input_schema: parameters }) =>
      name === undefined || parameters == null ? [] : [{ name, parameters }],
    ),
    toolChoice: choiceOf(choice ?? { type: 'auto' }),
    callsMax: choice?.disable_parallel_tool_use === true ? 1 : Number.POSITIVE_INFINITY,
    format: null,
    stops: request.stop_sequences ?? [],
    tokensMax: request.max_tokens,
    seed: JSON.stringify(messages),
  }
}

export function countInput({ messages, system }: z.infer<typeof countedSchema>): number {
  const texts = [textOf(system ?? ''), ...messages.map(({ content: said }) => textOf(said))]
  return texts.reduce((sum, text) => sum + countTokens(text), 0)
}

function choiceOf({ type, name = '' }: NonNullable<MessagesRequest['tool_choice']>) {
  if (type === 'tool') return { name }
  return type === 'any' ? 'required' : type
}

function textOf(said: string | readonly Block[]): string {
  if (typeof said === 'string') return said
  return said.map((part) => part.text ?? textOf(part.content ?? '')).join('')
}

function turnsOf({
  role,
  content: said,
}: MessagesRequest['messages'][number]): readonly AskedTurn[] {
  const results = typeof said === 'string' ? [] : said.filter(({ type }) => type === 'tool_result')
  return results.length === 0
    ? [{ kind: role === 'user' ? role : 'other', text: textOf(said) }]
    : results.map((result) => ({ kind: 'tool', text: textOf(result.content ?? '') }))
}
