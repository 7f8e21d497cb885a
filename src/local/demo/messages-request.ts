import { z } from 'zod'
import { countTokens, type Question } from './choices.ts'
import { parseBody } from './request.ts'

const jsonObject = z.record(z.string(), z.unknown())
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
  const at = messages.findLastIndex(
    ({ role, content: said }) => role === 'user' && !hasResults(said),
  )
  const last = messages.at(-1)
  const results = messages.slice(at + 1).flatMap(({ content: said }) => resultsOf(said))
  const isAnswered = last !== undefined && hasResults(last.content)
  return {
    model: request.model,
    said: textOf(messages[at]?.content ?? ''),
    toolResult: isAnswered ? textOf(resultsOf(last.content).at(-1)?.content ?? '') : null,
    answered: results.length,
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

function resultsOf(said: string | readonly Block[]): readonly Block[] {
  return typeof said === 'string' ? [] : said.filter(({ type }) => type === 'tool_result')
}

function hasResults(said: string | readonly Block[]): boolean {
  return resultsOf(said).length > 0
}
