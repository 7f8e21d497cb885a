import type { JsonObject } from '#attestation/json/value.ts'
import { DONE, hex, named, piecesOf, type Shape, type Turn } from '../model-turn.ts'

const reasonOf = ({ calls }: Turn) => (calls.length > 0 ? 'tool_use' : 'end_turn')
const PING = { type: 'ping' }

/** A block with its deltas, without its place in the message. */
type Block = { readonly start: JsonObject; readonly deltas: readonly JsonObject[] }

const textBlock = (text: string): Block => ({
  start: { type: 'text', text: '' },
  deltas: piecesOf(text).map((piece) => ({ type: 'text_delta', text: piece })),
})
const toolBlock = (start: JsonObject, pieces: readonly string[]): Block => ({
  start: { ...start, input: {} },
  deltas: pieces.map((partial_json) => ({ type: 'input_json_delta', partial_json })),
})

const eventsOf = ({ start, deltas }: Block, index: number): readonly JsonObject[] => [
  { type: 'content_block_start', index, content_block: start },
  ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
  { type: 'content_block_stop', index },
]

function streamOf(
  message: JsonObject,
  blocks: readonly Block[],
  ending: JsonObject,
): readonly JsonObject[] {
  return [
    { type: 'message_start', message },
    ...blocks.flatMap(eventsOf),
    { type: 'message_delta', ...ending },
    { type: 'message_stop' },
  ]
}

const cacheUsage = { cache_creation_input_tokens: 3068, cache_read_input_tokens: 0 }

/**
 * Thinking with a signature, a tool of the server with its result, pings, an empty first piece of
 * each input, and a container. From anthropic-combined-context-editing.1, anthropic-tool-search-
 * regex.1 and anthropic-code-execution-20260120-prompt-cache.1.
 */
export const anthropicMessages: Shape = (turn, { model }) => {
  const serverId = `srvtoolu_01${hex(11)}`
  const blocks: readonly Block[] = [
    {
      start: { type: 'thinking', thinking: '', signature: '' },
      deltas: [
        ...piecesOf(turn.reasoning).map((thinking) => ({ type: 'thinking_delta', thinking })),
        { type: 'signature_delta', signature: `EtQFCkYICxgCKkC6${hex(32)}` },
      ],
    },
    toolBlock({ type: 'server_tool_use', id: serverId, name: 'bash_code_execution' }, [
      '',
      '{"command',
      '": "seq 12"}',
    ]),
    {
      start: {
        type: 'bash_code_execution_tool_result',
        tool_use_id: serverId,
        content: {
          type: 'bash_code_execution_result',
          stdout: '1\n2\n',
          stderr: '',
          return_code: 0,
          content: [],
        },
      },
      deltas: [],
    },
    textBlock(turn.text),
    ...turn.calls.map(({ name, input }) =>
      toolBlock({ type: 'tool_use', id: `toolu_01${hex(11)}`, name, caller: { type: 'direct' } }, [
        '',
        ...piecesOf(input),
      ]),
    ),
  ]
  const message = {
    model,
    id: `msg_01${hex(11)}`,
    type: 'message',
    role: 'assistant',
    content: [],
    stop_reason: null,
    stop_sequence: null,
    stop_details: null,
    usage: {
      input_tokens: 2,
      ...cacheUsage,
      cache_creation: { ephemeral_5m_input_tokens: 3068, ephemeral_1h_input_tokens: 0 },
      output_tokens: 69,
      service_tier: 'standard',
      inference_geo: 'global',
    },
  }
  const events = streamOf(message, blocks, {
    delta: {
      stop_reason: reasonOf(turn),
      stop_sequence: null,
      stop_details: null,
      container: { id: `container_01${hex(11)}`, expires_at: '2026-07-30T18:54:08.960841Z' },
    },
    usage: {
      input_tokens: 6,
      ...cacheUsage,
      output_tokens: 198,
      output_tokens_details: { thinking_tokens: 20 },
      server_tool_use: { web_search_requests: 0, web_fetch_requests: 0 },
    },
    context_management: { applied_edits: [] },
  })
  const [start, ...others] = events
  return [start, ...others.flatMap((event, at) => (at % 5 === 1 ? [PING, event] : [event]))]
    .map((event) => named(event as JsonObject))
    .join('')
}

/**
 * A generation's id, the host's name, costs in the usage, and `[DONE]` after the end. As public
 * repositories have its streams; its calls are Anthropic's.
 */
export const openRouterMessages: Shape = (turn, { model }) => {
  const usage = { input_tokens: 0, ...cacheUsage, output_tokens: 0, server_tool_use: null }
  const message = {
    id: `gen-1781245943-${hex(10)}`,
    type: 'message',
    role: 'assistant',
    container: null,
    content: [],
    model,
    stop_reason: null,
    stop_sequence: null,
    usage,
    provider: 'DeepInfra',
  }
  const blocks: readonly Block[] = [
    {
      start: { type: 'thinking', thinking: '', signature: '' },
      deltas: piecesOf(turn.reasoning).map((thinking) => ({ type: 'thinking_delta', thinking })),
    },
    textBlock(turn.text),
    ...turn.calls.map(({ name, input }) =>
      toolBlock({ type: 'tool_use', id: `call_${hex(12)}`, name }, piecesOf(input)),
    ),
  ]
  const events = streamOf(message, blocks, {
    delta: { stop_reason: reasonOf(turn), stop_sequence: null },
    usage: { ...usage, input_tokens: 12, output_tokens: 26, cost: 0.001, is_byok: false },
  })
  return [': OPENROUTER PROCESSING\n\n', ...events.map(named), `event: data\n${DONE}`].join('')
}

/**
 * A message without `type` and `role`, thinking with a random signature, and `[DONE]`. As
 * vllm/entrypoints/anthropic/serving.py writes it (vllm-project/vllm, 82df3f4).
 */
export const vllmMessages: Shape = (turn, { model }) => {
  const message = {
    id: `chatcmpl-${hex(16)}`,
    content: [],
    model,
    stop_reason: null,
    stop_sequence: null,
    usage: { input_tokens: 12, output_tokens: 0 },
  }
  const blocks: readonly Block[] = [
    {
      start: { type: 'thinking', thinking: '' },
      deltas: [
        ...piecesOf(turn.reasoning).map((thinking) => ({ type: 'thinking_delta', thinking })),
        { type: 'signature_delta', signature: hex(16) },
      ],
    },
    textBlock(turn.text),
    ...turn.calls.map(({ name, input }) =>
      toolBlock({ type: 'tool_use', id: `chatcmpl-tool-${hex(16)}`, name }, piecesOf(input)),
    ),
  ]
  const ending = {
    delta: { stop_reason: reasonOf(turn) },
    usage: { input_tokens: 12, output_tokens: 26 },
  }
  return [...streamOf(message, blocks, ending).map(named), DONE].join('')
}

/**
 * No reasoning, no stop reason in the start, and no tokens until the end. As python/sglang/srt/
 * entrypoints/anthropic/serving.py writes it (sgl-project/sglang, 50e143a).
 */
export const sglangMessages: Shape = (turn, { model }) => {
  const message = {
    id: `msg_${hex(16)}`,
    type: 'message',
    role: 'assistant',
    content: [],
    model,
    usage: { input_tokens: 0, output_tokens: 0 },
  }
  const blocks: readonly Block[] = [
    textBlock(turn.text),
    ...turn.calls.map(({ name, input }) =>
      toolBlock({ type: 'tool_use', id: `call_${hex(12)}`, name }, piecesOf(input)),
    ),
  ]
  const ending = {
    delta: { stop_reason: reasonOf(turn) },
    usage: { input_tokens: 12, output_tokens: 26 },
  }
  return streamOf(message, blocks, ending).map(named).join('')
}
