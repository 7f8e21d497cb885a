import type { Json, JsonObject } from '#attestation/json/value.ts'

/** An item of a stream under construction: texts are given as the pieces of their deltas. */
export type BuiltItem = {
  readonly kind: 'message' | 'reasoning' | 'call'
  readonly id: string
  readonly pieces: readonly string[]
}

/** A whole stream, as OpenAI sends it. */
export function responsesStream(
  items: readonly BuiltItem[],
  ending: 'completed' | 'incomplete' = 'completed',
): readonly JsonObject[] {
  const response = { id: 'resp_1', object: 'response', created_at: 1, model: 'm', error: null }
  const begin = { ...response, status: 'in_progress', output: [] }
  const output = items.map(doneItem)
  const events = [
    { type: 'response.created', response: begin },
    { type: 'response.in_progress', response: begin },
    ...items.flatMap(itemEvents),
    {
      type: `response.${ending}`,
      response: {
        ...response,
        status: ending,
        output,
        usage: { input_tokens: 1, output_tokens: 2 },
      },
    },
  ]
  return events.map((event, sequence_number) => ({ ...event, sequence_number }))
}

function itemEvents(item: BuiltItem, output_index: number): readonly JsonObject[] {
  const done = { type: 'response.output_item.done', output_index, item: doneItem(item) }
  const text = item.pieces.join('')
  const place = { output_index, item_id: item.id }
  if (item.kind === 'call')
    return [
      added(output_index, { ...doneItem(item), arguments: '', status: 'in_progress' }),
      ...item.pieces.map((delta) => ({
        type: 'response.function_call_arguments.delta',
        ...place,
        delta,
      })),
      { type: 'response.function_call_arguments.done', ...place, arguments: text },
      done,
    ]
  const isMessage = item.kind === 'message'
  const name = isMessage ? 'output_text' : 'reasoning_summary_text'
  const part = isMessage ? 'content_part' : 'reasoning_summary_part'
  const at = { ...place, [isMessage ? 'content_index' : 'summary_index']: 0 }
  return [
    added(output_index, {
      ...doneItem(item),
      [isMessage ? 'content' : 'summary']: [],
      ...(isMessage ? { status: 'in_progress' } : {}),
    }),
    { type: `response.${part}.added`, ...at, part: partOf(item, '') },
    ...item.pieces.map((delta) => ({ type: `response.${name}.delta`, ...at, delta })),
    { type: `response.${name}.done`, ...at, text },
    { type: `response.${part}.done`, ...at, part: partOf(item, text) },
    done,
  ]
}

function added(output_index: number, item: JsonObject): JsonObject {
  return { type: 'response.output_item.added', output_index, item }
}

function partOf({ kind }: BuiltItem, text: string): JsonObject {
  return kind === 'message'
    ? { type: 'output_text', text, annotations: [] }
    : { type: 'summary_text', text }
}

function doneItem(item: BuiltItem): JsonObject {
  const text = item.pieces.join('')
  const { id, kind } = item
  if (kind === 'call')
    return {
      id,
      type: 'function_call',
      call_id: `call_${id}`,
      name: 'read_file',
      arguments: text,
      status: 'completed',
    }
  if (kind === 'reasoning') return { id, type: 'reasoning', summary: [partOf(item, text)] }
  return {
    id,
    type: 'message',
    role: 'assistant',
    status: 'completed',
    content: [partOf(item, text)],
  }
}

/** A whole response with this output. */
export function responseOf(output: readonly Json[], status = 'completed'): JsonObject {
  return { id: 'resp_1', object: 'response', model: 'm', status, output }
}
