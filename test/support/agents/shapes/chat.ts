import type { JsonObject } from '#attestation/json/value.ts'
import {
  type AgentRequest,
  DONE,
  hex,
  piecesOf,
  type Shape,
  type Turn,
  unnamed,
} from '../model-turn.ts'

const CREATED = 1_770_774_064
const reasonOf = ({ calls }: Turn) => (calls.length > 0 ? 'tool_calls' : 'stop')
const usage = { prompt_tokens: 291, completion_tokens: 26, total_tokens: 513 }

/** Writes chunks. `more`: members of each chunk beside those that all providers send. */
function chunksOf(id: string, { model }: AgentRequest, more: JsonObject = {}) {
  return (choices: readonly JsonObject[], others: JsonObject = {}) =>
    unnamed({
      id,
      object: 'chat.completion.chunk',
      created: CREATED,
      model,
      choices: choices.map((choice) => ({ index: 0, ...choice })),
      ...more,
      ...others,
    })
}

/** Whole calls, and usage in a chunk without choices. From chat.xai.xai-tool-call.chunks.txt. */
export const xaiChat: Shape = (turn, request) => {
  const id = 'de9d896d-e946-b3a7-bb14-75ab33326930'
  const chunk = chunksOf(id, request, { system_fingerprint: 'fp_2a885414fb' })
  const deltas: readonly JsonObject[] = [
    ...piecesOf(turn.reasoning).map((reasoning_content) => ({ reasoning_content })),
    ...piecesOf(turn.text).map((content) => ({ content })),
    ...turn.calls.map(({ name, input }, index) => ({
      tool_calls: [
        { id: `call_${hex(4)}`, function: { name, arguments: input }, index, type: 'function' },
      ],
    })),
  ]
  return [
    ...deltas.map((delta, at) =>
      chunk([{ delta: at === 0 ? { ...delta, role: 'assistant' } : delta }]),
    ),
    chunk([{ delta: {}, finish_reason: reasonOf(turn) }]),
    chunk([], {
      usage: {
        ...usage,
        completion_tokens_details: { reasoning_tokens: 196, audio_tokens: 0 },
        num_sources_used: 0,
        cost_in_usd_ticks: 1_330_500,
      },
    }),
    DONE,
  ].join('')
}

/**
 * Comments, reasoning in two members, a role in each chunk, and the host's reason beside its own.
 * From the stream gen-1772969079-EhEx5DeV7JqM43lpl47Y, which several public repositories have.
 */
export const openRouterChat: Shape = (turn, request) => {
  const chunk = chunksOf(`gen-1772969079-${hex(10)}`, request, { provider: 'Amazon Bedrock' })
  const delta = (more: JsonObject) =>
    chunk([
      {
        delta: { role: 'assistant', ...more },
        finish_reason: null,
        native_finish_reason: null,
        logprobs: null,
      },
    ])
  const reason = reasonOf(turn)
  return [
    ': OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n',
    ...piecesOf(turn.reasoning).map((text) => {
      const detail = { type: 'reasoning.text', text, format: 'unknown', index: 0 }
      return delta({ content: '', reasoning: text, reasoning_details: [detail] })
    }),
    ...piecesOf(turn.text).map((content) => delta({ content })),
    ...turn.calls.flatMap(({ name, input }, index) => [
      delta({
        content: null,
        tool_calls: [
          {
            index,
            id: `toolu_bdrk_${hex(12)}`,
            type: 'function',
            function: { name, arguments: '' },
          },
        ],
      }),
      ...['', ...piecesOf(input)].map((piece) =>
        delta({ content: null, tool_calls: [{ index, function: { arguments: piece } }] }),
      ),
    ]),
    chunk([
      {
        delta: { content: '', role: 'assistant' },
        finish_reason: reason,
        native_finish_reason: reason,
      },
    ]),
    chunk([], { usage: { ...usage, cost: 0.00012195, is_byok: false } }),
    DONE,
  ].join('')
}

/**
 * Members of the engine, a call whose name comes without arguments, and an end with an empty text.
 * From https://github.com/vllm-project/vllm/pull/25514.
 */
export const vllmChat: Shape = (turn, request) => {
  const chunk = chunksOf(`chatcmpl-${hex(16)}`, request)
  const delta = (more: JsonObject) =>
    chunk([{ delta: more, logprobs: null, finish_reason: null, token_ids: null }])
  return [
    chunk([{ delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }], {
      prompt_token_ids: null,
    }),
    ...piecesOf(turn.reasoning).map((piece) =>
      delta({ reasoning: piece, reasoning_content: piece }),
    ),
    ...piecesOf(turn.text).map((content) => delta({ content, tool_calls: [] })),
    ...turn.calls.flatMap(({ name, input }, index) => [
      delta({
        tool_calls: [
          { id: `chatcmpl-tool-${hex(16)}`, type: 'function', index, function: { name } },
        ],
      }),
      ...piecesOf(input).map((piece) =>
        delta({ tool_calls: [{ index, function: { arguments: piece } }] }),
      ),
    ]),
    chunk([
      {
        delta: { content: '' },
        logprobs: null,
        finish_reason: reasonOf(turn),
        stop_reason: null,
        token_ids: null,
      },
    ]),
    chunk([], { usage }),
    DONE,
  ].join('')
}

/**
 * Each member null that a delta does not have, an id and a name too, and an end without them. From
 * the stream 669d24a3423f4012bece9b51f2028500 of SGLang, which a public repository has.
 */
export const sglangChat: Shape = (turn, request) => {
  const chunk = chunksOf(hex(16), request)
  const choice = (delta: JsonObject) => ({
    delta,
    logprobs: null,
    finish_reason: null,
    matched_stop: null,
  })
  const empty = { role: null, content: null, reasoning_content: null, tool_calls: null }
  const delta = (more: JsonObject) => chunk([choice({ ...empty, ...more })], { usage: null })
  const call = (index: number, id: string | null, name: string | null, piece: string) =>
    delta({ tool_calls: [{ id, index, type: 'function', function: { name, arguments: piece } }] })
  return [
    chunk([choice({ reasoning_content: null, role: 'assistant', content: '' })]),
    ...piecesOf(turn.reasoning).map((reasoning_content) => chunk([choice({ reasoning_content })])),
    ...piecesOf(turn.text).map((content) => delta({ content })),
    ...turn.calls.flatMap(({ name, input }, index) => [
      call(index, `call_${hex(12)}`, name, ''),
      ...piecesOf(input).map((piece) => call(index, null, null, piece)),
    ]),
    chunk([
      { ...choice({ reasoning_content: null }), finish_reason: reasonOf(turn), matched_stop: 1 },
    ]),
    chunk([], { usage: { ...usage, prompt_tokens_details: null, reasoning_tokens: 13 } }),
    DONE,
  ].join('')
}
