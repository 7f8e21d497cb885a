import { z } from 'zod'
import { type AskedTurn, type Question, readTurns } from './choices.ts'
import { contentSchema, contentText, jsonObject, parseBody } from './request.ts'

const item = z.looseObject({
  type: z.string().nullish(),
  role: z.string().nullish(),
  content: contentSchema.nullish(),
  output: z.union([contentSchema, jsonObject]).nullish(),
})

const requestSchema = z.looseObject({
  model: z.string(),
  input: z.union([z.string(), z.array(item).min(1)]),
  instructions: z.string().nullish(),
  stream: z.boolean().nullish(),
  max_output_tokens: z.int().min(1).nullish(),
  reasoning: z.looseObject({ effort: z.string().nullish() }).nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  // Provider-defined tool types have other members, which are not checked.
  tools: z
    .array(
      z.looseObject({
        type: z.string(),
        name: z.string().optional(),
        parameters: jsonObject.nullish(),
      }),
    )
    .nullish(),
  tool_choice: z
    .union([z.enum(['none', 'auto', 'required']), z.looseObject({ name: z.string() })])
    .nullish(),
  text: z
    .looseObject({
      format: z.looseObject({ type: z.string(), schema: jsonObject.optional() }).nullish(),
    })
    .nullish(),
})

/** Unknown members are kept. */
export type ResponsesRequest = z.infer<typeof requestSchema>

/** Throws DemoError. */
export const parseResponsesRequest = (body: Uint8Array): ResponsesRequest =>
  parseBody(requestSchema, body)

export function questionOfResponses(request: ResponsesRequest): Question {
  const { tool_choice: choice, max_output_tokens: tokensMax } = request
  return {
    model: request.model,
    ...readTurns(itemsOf(request).map(turnOf)),
    tools: (request.tools ?? []).flatMap(({ type, name, parameters }) =>
      type === 'function' && name !== undefined ? [{ name, parameters }] : [],
    ),
    toolChoice: choice ?? 'auto',
    callsMax: request.parallel_tool_calls === false ? 1 : Number.POSITIVE_INFINITY,
    format: formatOf(request),
    stops: [],
    tokensMax: tokensMax ?? Number.POSITIVE_INFINITY,
    seed: JSON.stringify(request.input),
  }
}

export function itemsOf({ input }: ResponsesRequest): readonly z.infer<typeof item>[] {
  return typeof input === 'string' ? [{ role: 'user', content: input }] : input
}

export function textOfItem({ content, output }: z.infer<typeof item>): string {
  const said = content ?? output ?? ''
  return typeof said === 'string' || Array.isArray(said) ? contentText(said) : ''
}

function turnOf(turn: z.infer<typeof item>): AskedTurn {
  const kind = turn.role === 'user' ? 'user' : turn.type?.endsWith('_output') ? 'tool' : 'other'
  return { kind, text: textOfItem(turn) }
}

function formatOf({ text: asked }: ResponsesRequest): Question['format'] {
  if (asked?.format?.type === 'json_object') return { schema: null }
  return asked?.format?.type === 'json_schema' ? { schema: asked.format.schema ?? {} } : null
}
