import { hash } from 'node:crypto'
import { chooseAnswer, countTokens, splitTokens, thinkAbout } from './choices.ts'
import {
  itemsOf,
  questionOfResponses,
  type ResponsesRequest,
  textOfItem,
} from './responses-request.ts'

/** `type` is also the name of the event. */
export type NamedEvent = { readonly type: string }

type Item = {
  readonly item: Readonly<Record<string, unknown>> & { readonly id: string }
  /** Null: the streamed text is the arguments of a function. */
  readonly part: Part | null
  readonly tokens: readonly string[]
}

/** A part of an item: the list that contains it, and the names of its events. */
type Part = {
  readonly list: 'content' | 'summary'
  readonly events: 'content_part' | 'reasoning_summary_part'
  readonly type: 'output_text' | 'refusal' | 'summary_text'
  readonly member: 'text' | 'refusal'
  readonly text: 'output_text' | 'refusal' | 'reasoning_summary_text'
}

const PARTS = {
  text: {
    list: 'content',
    events: 'content_part',
    type: 'output_text',
    member: 'text',
    text: 'output_text',
  },
  refusal: {
    list: 'content',
    events: 'content_part',
    type: 'refusal',
    member: 'refusal',
    text: 'refusal',
  },
  thinking: {
    list: 'summary',
    events: 'reasoning_summary_part',
    type: 'summary_text',
    member: 'text',
    text: 'reasoning_summary_text',
  },
} as const satisfies Readonly<Record<string, Part>>

export type ResponsesAnswer = {
  readonly response: Readonly<Record<string, unknown>>
  readonly items: readonly Item[]
}

/** The same request always gets the same answer, except for its time. Throws DemoError. */
export function answerResponses(request: ResponsesRequest, nowMs: number): ResponsesAnswer {
  const question = questionOfResponses(request)
  const answer = chooseAnswer(question)
  const name = nameAnswer(request)
  const { effort = null } = request.reasoning ?? { effort: 'none' }
  const thinking = effort === 'none' ? [] : thinkAbout(question)
  const reasoning: readonly Item[] =
    thinking.length === 0
      ? []
      : [
          {
            item: { id: `rs_${name}`, type: 'reasoning', encrypted_content: null },
            part: PARTS.thinking,
            tokens: thinking,
          },
        ]
  const said: readonly Item[] =
    answer.kind === 'calls'
      ? answer.calls.map((call, at) => ({
          item: {
            id: `fc_${name}_${at}`,
            type: 'function_call',
            call_id: `call_${name}_${at}`,
            name: call.name,
          },
          part: null,
          tokens: splitTokens(call.arguments),
        }))
      : [
          {
            item: { id: `msg_${name}`, type: 'message', role: 'assistant' },
            part: PARTS[answer.kind],
            tokens: answer.tokens,
          },
        ]
  const isCut = answer.kind !== 'calls' && answer.isCut
  const output = [...reasoning, ...said]
  return {
    items: output,
    response: {
      id: `resp_${name}`,
      object: 'response',
      created_at: Math.floor(nowMs / 1000),
      status: isCut ? 'incomplete' : 'completed',
      error: null,
      incomplete_details: isCut ? { reason: 'max_output_tokens' } : null,
      instructions: request.instructions ?? null,
      model: request.model,
      output: output.map(endOf),
      parallel_tool_calls: request.parallel_tool_calls ?? true,
      tool_choice: request.tool_choice ?? 'auto',
      tools: request.tools ?? [],
      metadata: {},
      usage: countUsage(request, output, thinking.length),
    },
  }
}

/** The common part of all ids in an answer. A streamed and a whole answer have the same ids. */
export function nameAnswer(request: { readonly stream?: unknown }): string {
  const { stream: _, ...asked } = request
  return hash('sha256', JSON.stringify(asked), 'hex').slice(0, 24)
}

export function* writeResponsesEvents({ response, items }: ResponsesAnswer): Generator<NamedEvent> {
  let sequence_number = 0
  const numbered = (event: NamedEvent) => ({ ...event, sequence_number: sequence_number++ })
  const begun = { ...response, status: 'in_progress', output: [], usage: null }
  const start = { ...begun, incomplete_details: null }
  yield numbered(event('response.created', { response: start }))
  yield numbered(event('response.in_progress', { response: start }))
  for (const [output_index, item] of items.entries())
    for (const written of itemEvents(item, output_index)) yield numbered(written)
  yield numbered(event(`response.${response.status}`, { response }))
}

function* itemEvents(item: Item, output_index: number): Generator<NamedEvent> {
  const { part, tokens } = item
  const place = { output_index, item_id: item.item.id }
  const text = tokens.join('')
  yield event('response.output_item.added', { output_index, item: beginOf(item) })
  if (part === null) {
    const name = 'response.function_call_arguments'
    for (const delta of tokens) yield event(`${name}.delta`, { ...place, delta })
    yield event(`${name}.done`, { ...place, arguments: text })
  } else {
    const at = { ...place, [part.list === 'content' ? 'content_index' : 'summary_index']: 0 }
    yield event(`response.${part.events}.added`, { ...at, part: partOf(part, '') })
    for (const delta of tokens) yield event(`response.${part.text}.delta`, { ...at, delta })
    yield event(`response.${part.text}.done`, { ...at, [part.member]: text })
    yield event(`response.${part.events}.done`, { ...at, part: partOf(part, text) })
  }
  yield event('response.output_item.done', { output_index, item: endOf(item) })
}

function event(type: string, data: object): NamedEvent {
  return { type, ...data }
}

function partOf({ type, member }: Part, text: string): object {
  return type === 'output_text' ? { type, text, annotations: [] } : { type, [member]: text }
}

function beginOf({ item, part }: Item): object {
  if (part === null) return { ...item, arguments: '', status: 'in_progress' }
  const begun = { ...item, [part.list]: [] }
  return part.list === 'content' ? { ...begun, status: 'in_progress' } : begun
}

function endOf({ item, part, tokens }: Item): object {
  const text = tokens.join('')
  if (part === null) return { ...item, arguments: text, status: 'completed' }
  const ended = { ...item, [part.list]: [partOf(part, text)] }
  return part.list === 'content' ? { ...ended, status: 'completed' } : ended
}

function countUsage(request: ResponsesRequest, output: readonly Item[], reasoning: number): object {
  const texts = [request.instructions ?? '', ...itemsOf(request).map(textOfItem)]
  const input = texts.reduce((sum, text) => sum + countTokens(text), 0)
  const written = output.reduce((sum, { tokens }) => sum + tokens.length, 0)
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: written,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: input + written,
  }
}
