import { hash } from 'node:crypto'
import { type DemoAnswer, event, eventFrame, type NamedEvent, writeFrames } from './answers.ts'
import { chooseAnswer, countTokens, splitTokens, thinkAbout } from './choices.ts'
import {
  itemsOf,
  questionOfResponses,
  type ResponsesRequest,
  textOfItem,
} from './responses-request.ts'

type Item = {
  readonly item: Readonly<Record<string, unknown>> & { readonly id: string }
  /** Null: the streamed text is the arguments of a function. */
  readonly part: Part | null
  readonly tokens: readonly string[]
}

/** The type of a part, and the member that has its text. */
type Part = { readonly type: string; readonly member: 'text' | 'refusal' }

const PARTS = {
  text: { type: 'output_text', member: 'text' },
  refusal: { type: 'refusal', member: 'refusal' },
  thinking: { type: 'summary_text', member: 'text' },
} as const satisfies Readonly<Record<string, Part>>

const isSummary = (part: Part) => part.type === PARTS.thinking.type
const listOf = (part: Part) => (isSummary(part) ? 'summary' : 'content')

/** The same request always gets the same answer, except for its time. Throws DemoError. */
export function answerResponses(request: ResponsesRequest, nowMs: number): DemoAnswer {
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
  const items = [...reasoning, ...said]
  const response = {
    id: `resp_${name}`,
    object: 'response',
    created_at: Math.floor(nowMs / 1000),
    status: isCut ? 'incomplete' : 'completed',
    error: null,
    incomplete_details: isCut ? { reason: 'max_output_tokens' } : null,
    instructions: request.instructions ?? null,
    model: request.model,
    output: items.map(endOf),
    parallel_tool_calls: request.parallel_tool_calls ?? true,
    tool_choice: request.tool_choice ?? 'auto',
    tools: request.tools ?? [],
    metadata: {},
    usage: countUsage(request, items, thinking.length),
  }
  return {
    whole: () => response,
    frames: () => writeFrames(writeEvents(response, items), eventFrame),
    end: '',
  }
}

/** The common part of all ids in an answer. A streamed and a whole answer have the same ids. */
export function nameAnswer(request: { readonly stream?: unknown }): string {
  const { stream: _, ...asked } = request
  return hash('sha256', JSON.stringify(asked), 'hex').slice(0, 24)
}

function* writeEvents(
  response: { readonly status: string },
  items: readonly Item[],
): Generator<NamedEvent> {
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
    const at = { ...place, [`${listOf(part)}_index`]: 0 }
    const name = `response.${isSummary(part) ? `reasoning_${part.type}` : part.type}`
    const partName = `response.${isSummary(part) ? 'reasoning_summary' : 'content'}_part`
    yield event(`${partName}.added`, { ...at, part: partOf(part, '') })
    for (const delta of tokens) yield event(`${name}.delta`, { ...at, delta })
    yield event(`${name}.done`, { ...at, [part.member]: text })
    yield event(`${partName}.done`, { ...at, part: partOf(part, text) })
  }
  yield event('response.output_item.done', { output_index, item: endOf(item) })
}

function partOf({ type, member }: Part, text: string): object {
  return type === 'output_text' ? { type, text, annotations: [] } : { type, [member]: text }
}

function beginOf({ item, part }: Item): object {
  if (part === null) return { ...item, arguments: '', status: 'in_progress' }
  const begun = { ...item, [listOf(part)]: [] }
  return isSummary(part) ? begun : { ...begun, status: 'in_progress' }
}

function endOf({ item, part, tokens }: Item): object {
  const text = tokens.join('')
  if (part === null) return { ...item, arguments: text, status: 'completed' }
  const ended = { ...item, [listOf(part)]: [partOf(part, text)] }
  return isSummary(part) ? ended : { ...ended, status: 'completed' }
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
