import { randomUUID } from 'node:crypto'
import type { JsonObject } from '#attestation/json/value.ts'
import {
  type AgentRequest,
  DONE,
  hex,
  named,
  piecesOf,
  type Shape,
  type Turn,
  unnamed,
} from '../model-turn.ts'

const CREATED = 1_769_008_929
const USAGE = { input_tokens: 182, output_tokens: 61, total_tokens: 243 }

type Kind = 'reasoning' | 'message' | 'function_call'

/** An item at its end, with its id. `text`: its text or arguments, which stream. */
type Item = { readonly kind: Kind; readonly text: string; readonly item: JsonObject }

/** Where the text of an item streams: its list of parts and its events. */
type Channel = Readonly<Record<'list' | 'type' | 'part' | 'name' | 'index', string>>

const OUTPUT: Channel = {
  list: 'content',
  type: 'output_text',
  part: 'response.content_part',
  name: 'response.output_text',
  index: 'content_index',
}
const REASONING = { ...OUTPUT, type: 'reasoning_text', name: 'response.reasoning_text' }
const SUMMARY: Channel = {
  list: 'summary',
  type: 'summary_text',
  part: 'response.reasoning_summary_part',
  name: 'response.reasoning_summary_text',
  index: 'summary_index',
}

/** How a provider writes. */
type Form = {
  readonly id: string
  /** Members of each response beside those that all providers send. */
  readonly members: JsonObject
  readonly usage: JsonObject
  /** Default: REASONING. */
  readonly reasoning?: Channel
  /** Makes the id of an item. `at`: the number of the call. */
  itemId(kind: Kind, at: number): string
  callId(): string
  /** Members of each item, part and delta of a text. `text`: the text of the part or the delta. */
  textMembers?(text: string): JsonObject
  /** The events of an item after its start and before its end. */
  eventsOf?(item: Item, place: JsonObject, form: Form): readonly JsonObject[]
  /** The output in the last event. Default: the items that streamed. */
  outputOf?(items: readonly Item[]): readonly JsonObject[]
}

const channelOf = (kind: Kind, { reasoning = REASONING }: Form) =>
  kind === 'reasoning' ? reasoning : OUTPUT

function partOf(kind: Kind, text: string, form: Form): JsonObject {
  const more = kind === 'message' ? { annotations: [], ...form.textMembers?.(text) } : {}
  return { type: channelOf(kind, form).type, text, ...more }
}

function itemsOf({ reasoning, text, calls }: Turn, form: Form): readonly Item[] {
  const textItem = (kind: Kind, said: string, more: JsonObject): Item => {
    const parts = { [channelOf(kind, form).list]: [partOf(kind, said, form)] }
    const item = { id: form.itemId(kind, 0), type: kind, status: 'completed', ...more, ...parts }
    return { kind, text: said, item }
  }
  return [
    textItem('reasoning', reasoning, { summary: [] }),
    textItem('message', text, { role: 'assistant' }),
    ...calls.map(({ name, input }, at): Item => {
      const item = { id: form.itemId('function_call', at), type: 'function_call', name }
      return {
        kind: 'function_call',
        text: input,
        item: { ...item, call_id: form.callId(), arguments: input, status: 'completed' },
      }
    }),
  ]
}

/** The start of an item: without what streams. */
function startOf({ kind, item }: Item, form: Form): JsonObject {
  const empty: JsonObject =
    kind === 'function_call' ? { arguments: '' } : { [channelOf(kind, form).list]: [] }
  return { ...item, ...empty, status: 'in_progress' }
}

/** A part with the deltas of its text, or the deltas of the arguments. */
function eventsInside(one: Item, place: JsonObject, form: Form): readonly JsonObject[] {
  const { kind, text } = one
  if (kind === 'function_call') return argumentEvents(one, place, piecesOf(text))
  const { part, name, index } = channelOf(kind, form)
  const at = { ...place, [index]: 0 }
  const membersOf = (of: string) => (kind === 'message' ? form.textMembers?.(of) : {})
  return [
    { type: `${part}.added`, ...at, part: partOf(kind, '', form) },
    ...piecesOf(text).map((delta) => ({
      type: `${name}.delta`,
      ...at,
      delta,
      ...membersOf(delta),
    })),
    { type: `${name}.done`, ...at, text, ...membersOf(text) },
    { type: `${part}.done`, ...at, part: partOf(kind, text, form) },
  ]
}

function argumentEvents(
  { text, item }: Item,
  place: JsonObject,
  pieces: readonly string[],
): readonly JsonObject[] {
  const name = 'response.function_call_arguments'
  return [
    ...pieces.map((delta) => ({ type: `${name}.delta`, ...place, delta })),
    { type: `${name}.done`, ...place, arguments: text, name: item.name ?? '' },
  ]
}

function streamOf(turn: Turn, { model }: AgentRequest, form: Form): readonly JsonObject[] {
  const { id, members, usage, eventsOf = eventsInside } = form
  const response = { id, object: 'response', created_at: CREATED, model, ...members }
  const begun = { ...response, status: 'in_progress', output: [], usage: null }
  const items = itemsOf(turn, form)
  const output = form.outputOf?.(items) ?? items.map(({ item }) => item)
  const events: readonly JsonObject[] = [
    { type: 'response.created', response: begun },
    { type: 'response.in_progress', response: begun },
    ...items.flatMap((one, output_index) => [
      { type: 'response.output_item.added', output_index, item: startOf(one, form) },
      ...eventsOf(one, { output_index, item_id: one.item.id ?? null }, form),
      { type: 'response.output_item.done', output_index, item: one.item },
    ]),
    { type: 'response.completed', response: { ...response, status: 'completed', output, usage } },
  ]
  return events.map((event, sequence_number) => ({ ...event, sequence_number }))
}

/**
 * Ids of the response in those of its items, reasoning as a summary, and calls in one piece. From
 * responses.xai.xai-text-with-reasoning-streaming.1; calls as in xai-code-execution-tool.1.
 */
export const xaiResponses: Shape = (turn, request) => {
  const id = randomUUID()
  const prefixes = { reasoning: 'rs', message: 'msg', function_call: 'fc' }
  const events = streamOf(turn, request, {
    id,
    members: {
      max_output_tokens: null,
      parallel_tool_calls: true,
      reasoning: { effort: null, summary: null },
      text: { format: { type: 'text' } },
      tools: request.tools,
      user: null,
      store: true,
      metadata: {},
    },
    usage: { ...USAGE, num_sources_used: 0, num_server_side_tools_used: 0 },
    reasoning: SUMMARY,
    itemId: (kind, at) => `${prefixes[kind]}_${id}${kind === 'function_call' ? `_${at}` : ''}`,
    callId: () => `call_${hex(4)}`,
    textMembers: () => ({ logprobs: [] }),
    eventsOf(item, place, form) {
      if (item.kind !== 'function_call') return eventsInside(item, place, form)
      return argumentEvents(item, place, [item.text])
    },
  })
  return events.map(named).join('')
}

/**
 * Events without names, comments, ids of items that are marked as temporary, reasoning that is
 * encrypted under the host's id in the last answer, and `[DONE]`. From the streams gen-1787613647-
 * WbwIESj1u92qPRNL7WNj and gen-1787612977-3B6PXHIyVETuFLzBCzwW to Codex, which a public repository
 * has; calls as in gen-1790961464-KjC8DeoDd9a63XtmOrOq.
 */
export const openRouterResponses: Shape = (turn, request) => {
  const prefixes = { reasoning: 'rs_tmp', message: 'msg_tmp', function_call: 'fc_tmp' }
  const events = streamOf(turn, request, {
    id: `gen-1787613647-${hex(10)}`,
    members: {
      completed_at: null,
      error: null,
      incomplete_details: null,
      tools: request.tools,
      tool_choice: 'auto',
      parallel_tool_calls: false,
      metadata: {},
      background: false,
      store: false,
      text: { verbosity: 'low' },
      reasoning: { effort: 'high', context: 'all_turns' },
      prompt_cache_options: null,
    },
    usage: { ...USAGE, cost: 0.025706, is_byok: false },
    itemId: (kind) => `${prefixes[kind]}_${hex(6)}`,
    callId: randomUUID,
    textMembers: () => ({ logprobs: [] }),
  })
  const sent = turn.calls.length > 0 ? events : encrypted(events)
  return [': \n\n: \n\n', ...sent.flatMap((event) => [unnamed(event), ': \n\n']), DONE].join('')
}

/** The events with a reasoning item that has only its encrypted content. */
function encrypted(events: readonly JsonObject[]): readonly JsonObject[] {
  const encrypted_content = `gAAAAABqjM81${hex(40)}`
  const item = {
    id: `rs_${hex(25)}`,
    type: 'reasoning',
    status: 'completed',
    summary: [],
    encrypted_content,
    format: 'openai-responses-v1',
  }
  return events.flatMap((event) => {
    const { response, output_index } = event
    const isDelta = output_index === 0 && !Object.hasOwn(event, 'item')
    if (isDelta) return []
    if (output_index === 0) return [{ ...event, item }]
    const output = (response as { output?: readonly JsonObject[] } | undefined)?.output ?? []
    if (output.length === 0) return [event]
    return [
      { ...event, response: { ...(response as JsonObject), output: [item, ...output.slice(1)] } },
    ]
  })
}

/**
 * Log probabilities of each piece again in the end of the text, its part and its item, and calls
 * without deltas. From responses.open-responses.lmstudio-tool-call.1.
 */
export const lmStudioResponses: Shape = (turn, request) => {
  const prefixes = { reasoning: 'rs', message: 'msg', function_call: 'fc' }
  const events = streamOf(turn, request, {
    id: `resp_${hex(24)}`,
    members: {
      completed_at: null,
      incomplete_details: null,
      previous_response_id: null,
      instructions: null,
      error: null,
      tools: request.tools,
      tool_choice: 'auto',
      truncation: 'auto',
      parallel_tool_calls: true,
      text: { format: { type: 'text' } },
      temperature: 0.2,
      reasoning: { summary: null, effort: null },
      store: true,
      metadata: {},
    },
    usage: { ...USAGE, input_tokens_details: { cached_tokens: 2 } },
    itemId: (kind) => `${prefixes[kind]}_${hex(10)}`,
    callId: () => `call_${Number.parseInt(hex(5), 16)}`,
    textMembers: (text) => ({
      logprobs: piecesOf(text).map((token) => ({
        token,
        logprob: -0.25,
        bytes: [...Buffer.from(token)],
        top_logprobs: [],
      })),
    }),
    eventsOf(item, place, form) {
      if (item.kind !== 'function_call') return eventsInside(item, place, form)
      return argumentEvents(item, place, []).map(({ name: _, ...event }) => event)
    },
  })
  return events.map(named).join('')
}

const vllmForm = (request: AgentRequest): Form => ({
  id: `resp_${hex(8)}`,
  members: {
    incomplete_details: null,
    instructions: null,
    metadata: null,
    tools: request.tools,
    background: false,
    input_messages: null,
    output_messages: null,
    kv_transfer_params: null,
  },
  usage: {
    ...USAGE,
    input_tokens_details: { cached_tokens: 0, input_tokens_per_turn: [] },
    output_tokens_details: { reasoning_tokens: 0, tool_output_tokens: 0 },
  },
  itemId: () => hex(8),
  callId: () => `call_${hex(8)}`,
  outputOf: (items) => items.map(({ kind, item }) => renamed(kind, item)),
})

/** An item of the final answer, which vLLM reads from the text a second time. */
function renamed(kind: Kind, item: JsonObject): JsonObject {
  if (kind === 'function_call')
    return { ...item, id: `fc_${hex(8)}`, call_id: `call_${hex(8)}`, status: 'completed' }
  const own: JsonObject = kind === 'reasoning' ? { encrypted_content: null } : {}
  const prefix = kind === 'reasoning' ? 'rs' : 'msg'
  return { ...item, ...own, id: `${prefix}_${hex(8)}` }
}

/**
 * The first arguments in the start of a call and in a delta, and a last answer with other ids, and
 * other calls' ids. From https://github.com/vllm-project/vllm/pull/47916 and vllm/entrypoints/
 * openai/responses/simple_streaming_events.py (25af204).
 */
export const vllmResponses: Shape = (turn, request) =>
  streamOf(turn, request, vllmForm(request))
    .map((event, at, events) => {
      const { item } = event as { readonly item?: JsonObject }
      const isStart = event.type === 'response.output_item.added' && item?.type === 'function_call'
      const early = { ...item, arguments: events[at + 1]?.delta ?? '' }
      return named(isStart ? { ...event, item: early } : event)
    })
    .join('')

/**
 * A last answer with other ids, one count of parts for all items, events `reasoning_part` for the
 * parts of reasoning, and ends of texts and items at the next `output_index`. From
 * https://github.com/vllm-project/vllm/pull/31761.
 */
export const vllmGptOssResponses: Shape = (turn, request) => {
  const events = streamOf(turn, request, {
    ...vllmForm(request),
    itemId: () => `msg_${hex(8)}`,
  })
  return events
    .map((event) => {
      const { output_index, item_id, item } = event
      if (typeof output_index !== 'number') return named(event)
      const type = String(event.type)
      const isReasoning = output_index === 0
      const isCall = (item as JsonObject | undefined)?.type === 'function_call'
      const isEnd = type.endsWith('.done') && !isCall && !type.includes('arguments')
      return named({
        ...event,
        type: isReasoning ? type.replace('content_part', 'reasoning_part') : type,
        ...(isEnd ? { output_index: output_index + 1 } : {}),
        ...(item_id !== undefined && !type.includes('arguments')
          ? { content_index: output_index }
          : {}),
      })
    })
    .join('')
}
