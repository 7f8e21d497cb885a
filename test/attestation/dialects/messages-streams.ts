import type { Json, JsonObject } from '#attestation/json/value.ts'

/** A block of a stream under construction: texts are given as the pieces of their deltas. */
export type BuiltBlock =
  | { readonly kind: 'text'; readonly pieces: readonly string[]; readonly citations?: Json[] }
  | { readonly kind: 'thinking'; readonly pieces: readonly string[]; readonly signature: string }
  | { readonly kind: 'tool'; readonly id: string; readonly pieces: readonly string[] }
  | { readonly kind: 'result'; readonly id: string }

/** A whole stream, as Anthropic sends it. */
export function messagesStream(blocks: readonly BuiltBlock[]): readonly JsonObject[] {
  const message = {
    ...messageOf([]),
    stop_reason: null,
    usage: { input_tokens: 10, output_tokens: 1 },
  }
  return [
    { type: 'message_start', message },
    { type: 'ping' },
    ...blocks.flatMap(blockEvents),
    {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 20 },
    },
    { type: 'message_stop' },
  ]
}

/** The message that the blocks amount to. */
export function builtMessage(blocks: readonly BuiltBlock[]): JsonObject {
  return messageOf(blocks.map(builtBlock))
}

/** A whole message with this content. */
export function messageOf(content: readonly Json[]): JsonObject {
  return {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content,
    stop_reason: 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 10, output_tokens: 20 },
  }
}

function builtBlock(block: BuiltBlock): JsonObject {
  if (block.kind === 'result') return startOf(block)
  const text = block.pieces.join('')
  if (block.kind === 'tool')
    return { ...startOf(block), input: text === '' ? {} : JSON.parse(text) }
  if (block.kind === 'thinking')
    return { type: 'thinking', thinking: text, signature: block.signature }
  const { citations = [] } = block
  return citations.length === 0 ? { type: 'text', text } : { type: 'text', text, citations }
}

function startOf(block: BuiltBlock): JsonObject {
  if (block.kind === 'result')
    return { type: 'web_search_tool_result', tool_use_id: block.id, content: [] }
  if (block.kind === 'tool') return { type: 'tool_use', id: block.id, name: 'read_file', input: {} }
  if (block.kind === 'thinking') return { type: 'thinking', thinking: '', signature: '' }
  return { type: 'text', text: '' }
}

function blockEvents(block: BuiltBlock, index: number): readonly JsonObject[] {
  const delta = (value: JsonObject) => ({ type: 'content_block_delta', index, delta: value })
  return [
    { type: 'content_block_start', index, content_block: startOf(block) },
    ...deltasOf(block).map(delta),
    { type: 'content_block_stop', index },
  ]
}

function deltasOf(block: BuiltBlock): readonly JsonObject[] {
  if (block.kind === 'result') return []
  if (block.kind === 'tool')
    return block.pieces.map((partial_json) => ({ type: 'input_json_delta', partial_json }))
  if (block.kind === 'thinking')
    return [
      ...block.pieces.map((thinking) => ({ type: 'thinking_delta', thinking })),
      { type: 'signature_delta', signature: block.signature },
    ]
  return [
    ...block.pieces.map((text) => ({ type: 'text_delta', text })),
    ...(block.citations ?? []).map((citation) => ({ type: 'citations_delta', citation })),
  ]
}
