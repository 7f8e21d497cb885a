import {
  beyondSchema,
  type FieldRow,
  integerRow,
  NO_BOOLEAN,
  numberRow,
  refuse,
  refuseAt,
  requiredTextRow,
  textRow,
} from './field-row.ts'
import { PLAIN_MESSAGES_ROW, VERIFIED_MESSAGES_ROW } from './message-row.ts'
import { RESPONSE_FORMAT_ROW } from './response-format-row.ts'

/** The smallest chat request. */
export const CHAT = { model: 'demo/echo', messages: [{ role: 'user', content: 'hello' }] }

/** A tool, and the choice of this tool. */
export const TOOL = { type: 'function', function: { name: 'get_weather' } }

/** Interface, 2.1, 2.4 (the object of a JSON schema) and part 8. */
const CHAT_ROWS: readonly FieldRow[] = [
  requiredTextRow('model', 'demo/echo'),
  numberRow('frequency_penalty', { min: -2, max: 2 }),
  {
    field: 'logit_bias',
    accepts: [undefined, null, {}, { 50256: -100 }, { 50256: 1.5, 1: 0 }],
    rejects: [
      ...refuse('dict_type', [], 'x', 5, true),
      ...refuseAt(['50256'], 'float_type', { 50256: 'much' }, { 50256: null }),
    ],
  },
  { field: 'logprobs', accepts: [undefined, null, true, false], rejects: NO_BOOLEAN },
  { ...integerRow('top_logprobs', { min: 0, max: 20 }), beside: { logprobs: true } },
  { field: 'top_logprobs', accepts: [null], rejects: beyondSchema(refuse('value_error', 0, 5)) },
  {
    field: 'top_logprobs',
    accepts: [null],
    rejects: beyondSchema(refuse('value_error', 0, 5)),
    beside: { logprobs: false },
  },
  integerRow('max_tokens', { min: 1 }),
  { ...integerRow('n', { min: 1, max: 128 }), beside: { max_tokens: 2 } },
  numberRow('presence_penalty', { min: -2, max: 2 }),
  RESPONSE_FORMAT_ROW,
  {
    field: 'seed',
    accepts: [undefined, null, 0, -1, 2 ** 31, Number.MIN_SAFE_INTEGER],
    rejects: [...refuse('int_from_float', 1.5), ...refuse('int_type', '1', true, [], {})],
  },
  {
    field: 'stop',
    accepts: [undefined, null, 'end', [], ['a'], ['a', 'b', 'c', 'd']],
    rejects: [
      ...refuse('string_type', 5, true, {}),
      ...refuse('too_long', ['a', 'b', 'c', 'd', 'e']),
      ...refuseAt([0], 'string_type', [1]),
      ...refuseAt([1], 'string_type', ['a', null]),
    ],
  },
  // Tests of streams check the effect of true.
  { field: 'stream', accepts: [undefined, null, false, true], rejects: NO_BOOLEAN },
  {
    field: 'stream_options',
    accepts: [undefined, null, {}, { include_usage: true }, { include_usage: false }],
    rejects: [
      ...refuse('dict_type', 5, 'x', []),
      ...refuseAt(['include_usage'], 'bool_type', { include_usage: 'yes' }),
    ],
    beside: { stream: true },
  },
  {
    field: 'stream_options',
    accepts: [null],
    rejects: beyondSchema(refuse('value_error', {}, { include_usage: true })),
  },
  numberRow('temperature', { min: 0, max: 2 }),
  numberRow('top_p', { min: 0, max: 1 }),
  {
    field: 'tools',
    accepts: [undefined, null, [], [TOOL], [{ ...TOOL, function: { name: 'f', parameters: {} } }]],
    rejects: [
      ...refuse('list_type', 'x', 5, {}),
      ...refuseAt([0], 'dict_type', [1], [null]),
      ...refuseAt([0, 'type'], 'literal_error', [{ ...TOOL, type: 'retrieval' }]),
      ...refuseAt([0, 'type'], 'missing', [{ function: TOOL.function }]),
      ...refuseAt([0, 'function'], 'missing', [{ type: 'function' }]),
      ...refuseAt([0, 'function', 'name'], 'missing', [{ type: 'function', function: {} }]),
      ...refuseAt([1, 'type'], 'literal_error', [TOOL, { ...TOOL, type: '' }]),
    ],
  },
  {
    field: 'tool_choice',
    accepts: [undefined, null, 'none', 'auto', 'required', TOOL],
    rejects: [
      ...refuse('literal_error', 'always', '', 'AUTO', 5, true, []),
      ...refuseAt(['type'], 'missing', {}),
      ...refuseAt(['type'], 'literal_error', { ...TOOL, type: 'tool' }),
      ...refuseAt(['function'], 'missing', { type: 'function' }),
      ...refuseAt(['function', 'name'], 'missing', { type: 'function', function: {} }),
      ...refuseAt(['function', 'name'], 'string_too_short', {
        type: 'function',
        function: { name: '' },
      }),
    ],
    beside: { tools: [TOOL] },
  },
  textRow('user'),
]

export const PLAIN_CHAT_ROWS: readonly FieldRow[] = [PLAIN_MESSAGES_ROW, ...CHAT_ROWS]
export const VERIFIED_CHAT_ROWS: readonly FieldRow[] = [VERIFIED_MESSAGES_ROW, ...CHAT_ROWS]
