import { expect, it } from 'vitest'
import {
  FAULTS_MAX,
  LOC_NAME_LENGTH_MAX,
  type RequestFault,
} from '#enclave/protocol/request-faults.ts'
import { ValidationError } from '#src/api/errors.ts'
import { chatRequest, providersRequestWith } from '#src/chat/chat-request.ts'
import { validateBody } from '../../support/validate-body.ts'

const user = { role: 'user', content: 'hello' }
const minimal = { model: 'demo/echo', messages: [user] }
const encode = (value: unknown) =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value))

function faultsOf(value: unknown): readonly RequestFault[] {
  try {
    validateBody(chatRequest, encode(value))
  } catch (error) {
    if (error instanceof ValidationError) return error.detail
    throw error
  }
  return []
}

const faultsWith = (members: object) => faultsOf({ ...minimal, ...members })
const faultsOfMessage = (message: unknown) => faultsWith({ messages: [message] })
const locAndType = (faults: readonly RequestFault[]) =>
  faults.map(({ loc, type }) => [loc.join('.'), type])

it('parseChatRequest accepts a minimal request', () => {
  expect(validateBody(chatRequest, encode(minimal))).toMatchObject({
    model: 'demo/echo',
    isStream: false,
    includesUsage: false,
  })
})

it('parseChatRequest accepts a stream that asks for usage', () => {
  const body = encode({ ...minimal, stream: true, stream_options: { include_usage: true } })
  expect(validateBody(chatRequest, body)).toMatchObject({
    model: 'demo/echo',
    isStream: true,
    includesUsage: true,
  })
})

it('parseChatRequest accepts null for every optional member', () => {
  const optional = [
    'frequency_penalty',
    'logit_bias',
    'logprobs',
    'top_logprobs',
    'max_tokens',
    'n',
    'seed',
  ]
  optional.push(
    'presence_penalty',
    'response_format',
    'stop',
    'stream',
    'stream_options',
    'temperature',
    'top_p',
  )
  optional.push('tools', 'tool_choice', 'user')
  const message = {
    ...user,
    name: null,
    function_call: null,
    tool_calls: null,
    tool_call_id: null,
  }
  expect(faultsWith(Object.fromEntries(optional.map((name) => [name, null])))).toEqual([])
  expect(faultsOfMessage(message)).toEqual([])
})

it.each([
  { frequency_penalty: -2 },
  { frequency_penalty: 2 },
  { presence_penalty: 2 },
  { presence_penalty: -2 },
  { temperature: 0 },
  { temperature: 2 },
  { top_p: 0 },
  { top_p: 1 },
  { n: 1 },
  { n: 128 },
  { max_tokens: 1 },
  { seed: -9007199254740991 },
  { logprobs: true, top_logprobs: 20 },
  { logprobs: true, top_logprobs: 0 },
  { logit_bias: { 50256: -100, 11: 2.5 } },
  { stop: 'END' },
  { stop: [] },
  { stop: ['a', 'b', 'c', 'd'] },
  { stream: true, stream_options: {} },
  { stream: false, stream_options: null },
  { tools: [{ type: 'function', function: { name: 'f' } }] },
  {
    tools: [
      {
        type: 'function',
        function: { name: 'f', description: 'd', parameters: {}, strict: true },
      },
    ],
  },
  { tool_choice: 'none' },
  { tool_choice: 'auto' },
  { tool_choice: 'required' },
  { tool_choice: { type: 'function', function: { name: 'f' } } },
  { response_format: { type: 'text' } },
  { response_format: { type: 'json_object' } },
  { response_format: { type: 'json_schema', json_schema: { name: 'a_B-9', schema: null } } },
  {
    response_format: {
      type: 'json_schema',
      json_schema: { name: 'x'.repeat(64), schema: {}, strict: null },
    },
  },
  { user: 'someone', unknown_member: { anything: [1, null] }, reasoning_effort: 'low' },
])('parseChatRequest accepts the members %j', (members) => expect(faultsWith(members)).toEqual([]))

it.each([
  { role: 'system', content: 's' },
  { role: 'developer', content: 's' },
  { role: 'user', content: '' },
  { role: 'assistant', content: null, tool_calls: [call('f')] },
  { role: 'assistant', content: 'a', function_call: { name: 'f', arguments: '{}' } },
  { role: 'assistant' },
  { role: 'tool', content: 'r', tool_call_id: 'c1' },
  { role: 'function', content: null, name: 'f' },
  { role: 'user', content: [{ type: 'text', text: 't' }], name: 'n', unknown: 1 },
  { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:x', detail: 'low' } }] },
  {
    role: 'user',
    content: [{ type: 'input_audio', input_audio: { data: 'AA==', format: 'wav' } }],
  },
  { role: 'user', content: [{ type: 'file', file: { file_id: 'f' } }] },
  { role: 'assistant', content: [{ type: 'refusal', refusal: 'no' }] },
])('parseChatRequest accepts the message %j', (message) =>
  expect(faultsOfMessage(message)).toEqual([]),
)

const faultsOfProviders = (message: object) => {
  try {
    validateBody(providersRequestWith({}), encode({ ...minimal, messages: [message] }))
    return []
  } catch (error) {
    if (error instanceof ValidationError) return error.detail
    throw error
  }
}

it.each([
  // What providers give out can be sent back.
  {
    role: 'assistant',
    content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'Hm' }] }],
  },
  { role: 'assistant', content: [{ type: 'reference', reference_ids: [1] }] },
  { role: 'user', content: [{ type: 'video_url', video_url: { url: 'data:x' } }] },
  { role: 'user', content: [{ type: 'image_url', image_url: 'data:x' }] },
  { role: 'user', content: [{ type: 'constructor' }] },
])('a request to a provider may have the message %j', (message) =>
  expect(faultsOfProviders(message)).toEqual([]),
)

it.each([
  [{ role: 'user', content: [{ type: 7 }] }, 'content.0.type', 'string_type'],
  [{ role: 'user', content: [{ type: '' }] }, 'content.0.type', 'string_too_short'],
  [{ role: 'user', content: [{ type: 'text', text: 7 }] }, 'content.0.text', 'string_type'],
  [
    { role: 'user', content: [{ type: 'image_url', image_url: { url: 7 } }] },
    'content.0.image_url.url',
    'string_type',
  ],
])('a request to a provider may not have the message %j', (message, loc, type) =>
  expect(locAndType(faultsOfProviders(message))).toEqual([[`body.messages.0.${loc}`, type]]),
)

it('parseChatRequest refuses what is not an object, and an empty body', () => {
  expect(faultsOf('')).toEqual([{ loc: ['body'], msg: 'Field required', type: 'missing' }])
  for (const body of ['[]', '1', 'null', '"x"'])
    expect(locAndType(faultsOf(body))).toEqual([['body', 'dict_type']])
})

it('parseChatRequest refuses missing members, all of them at once', () => {
  expect(locAndType(faultsOf({}))).toEqual([
    ['body.messages', 'missing'],
    ['body.model', 'missing'],
  ])
})

it('parseChatRequest tells faults of several members together, without their values', () => {
  const faults = faultsWith({ temperature: 2.5, n: 'SECRET', stop: ['1', '2', '3', '4', '5'] })
  expect(faults).toEqual([
    { loc: ['body', 'n'], msg: 'Input should be a valid integer', type: 'int_type' },
    { loc: ['body', 'stop'], msg: 'List should have at most 4 items', type: 'too_long' },
    {
      loc: ['body', 'temperature'],
      msg: 'Input should be less than or equal to 2',
      type: 'less_than_equal',
    },
  ])
})

it.each([
  [{ messages: [] }, 'messages', 'too_short'],
  [{ messages: {} }, 'messages', 'list_type'],
  [{ messages: null }, 'messages', 'list_type'],
  [{ messages: ['x'] }, 'messages.0', 'dict_type'],
  [{ model: null }, 'model', 'string_type'],
  [{ model: '' }, 'model', 'string_too_short'],
  [{ model: 'm'.repeat(513) }, 'model', 'string_too_long'],
  [{ frequency_penalty: 2.1 }, 'frequency_penalty', 'less_than_equal'],
  [{ frequency_penalty: -2.1 }, 'frequency_penalty', 'greater_than_equal'],
  [{ frequency_penalty: '1' }, 'frequency_penalty', 'float_type'],
  [{ presence_penalty: 3 }, 'presence_penalty', 'less_than_equal'],
  [{ presence_penalty: -3 }, 'presence_penalty', 'greater_than_equal'],
  [{ temperature: -0.1 }, 'temperature', 'greater_than_equal'],
  [{ temperature: 2.1 }, 'temperature', 'less_than_equal'],
  [{ top_p: 1.1 }, 'top_p', 'less_than_equal'],
  [{ n: 0 }, 'n', 'greater_than_equal'],
  [{ n: 129 }, 'n', 'less_than_equal'],
  [{ n: 1.5 }, 'n', 'int_from_float'],
  [{ max_tokens: 0 }, 'max_tokens', 'greater_than_equal'],
  [{ seed: 0.5 }, 'seed', 'int_from_float'],
  [{ logit_bias: [1] }, 'logit_bias', 'dict_type'],
  [{ logit_bias: { 5: '1' } }, 'logit_bias.5', 'float_type'],
  [{ logprobs: 1 }, 'logprobs', 'bool_type'],
  [{ logprobs: true, top_logprobs: 21 }, 'top_logprobs', 'less_than_equal'],
  [{ logprobs: true, top_logprobs: -1 }, 'top_logprobs', 'greater_than_equal'],
  [{ top_logprobs: 1 }, 'top_logprobs', 'value_error'],
  [{ logprobs: false, top_logprobs: 1 }, 'top_logprobs', 'value_error'],
  [{ stop: 5 }, 'stop', 'string_type'],
  [{ stop: [5] }, 'stop.0', 'string_type'],
  [{ stream: 'true' }, 'stream', 'bool_type'],
  [{ stream_options: {} }, 'stream_options', 'value_error'],
  [{ stream: true, stream_options: [] }, 'stream_options', 'dict_type'],
  [
    { stream: true, stream_options: { include_usage: 1 } },
    'stream_options.include_usage',
    'bool_type',
  ],
  [{ tools: {} }, 'tools', 'list_type'],
  [{ tools: [{ type: 'custom', function: { name: 'f' } }] }, 'tools.0.type', 'literal_error'],
  [{ tools: [{ type: 'function' }] }, 'tools.0.function', 'missing'],
  [{ tools: [{ type: 'function', function: {} }] }, 'tools.0.function.name', 'missing'],
  [{ tool_choice: 'any' }, 'tool_choice', 'literal_error'],
  [{ tool_choice: { type: 'function' } }, 'tool_choice.function', 'missing'],
  [{ tool_choice: 7 }, 'tool_choice', 'literal_error'],
  [{ response_format: 'json' }, 'response_format', 'dict_type'],
  [{ response_format: {} }, 'response_format.type', 'missing'],
  [{ response_format: { type: 'xml' } }, 'response_format.type', 'literal_error'],
  [{ response_format: { type: 'json_schema' } }, 'response_format.json_schema', 'missing'],
  [format({ schema: {} }), 'response_format.json_schema.name', 'missing'],
  [
    format({ name: 'a b', schema: {} }),
    'response_format.json_schema.name',
    'string_pattern_mismatch',
  ],
  [
    format({ name: 'x'.repeat(65), schema: {} }),
    'response_format.json_schema.name',
    'string_pattern_mismatch',
  ],
  [
    format({ name: 'a\n', schema: {} }),
    'response_format.json_schema.name',
    'string_pattern_mismatch',
  ],
  [format({ name: 'a' }), 'response_format.json_schema.schema', 'missing'],
  [format({ name: 'a', schema: [] }), 'response_format.json_schema.schema', 'dict_type'],
  [
    format({ name: 'a', schema: {}, strict: 'yes' }),
    'response_format.json_schema.strict',
    'bool_type',
  ],
  [{ user: 5 }, 'user', 'string_type'],
])('parseChatRequest refuses %j at %s', (members, loc, type) =>
  expect(locAndType(faultsWith(members))).toEqual([[`body.${loc}`, type]]),
)

it.each([
  [{ content: 'x' }, 'role', 'missing'],
  [{ role: 'robot', content: 'x' }, 'role', 'literal_error'],
  [{ role: 'user' }, 'content', 'missing'],
  [{ role: 'user', content: null }, 'content', 'missing'],
  [{ role: 'tool', content: 'x' }, 'tool_call_id', 'missing'],
  [{ role: 'function', content: 'x' }, 'name', 'missing'],
  [{ role: 'user', content: 5 }, 'content', 'string_type'],
  [{ role: 'user', content: ['x'] }, 'content.0', 'dict_type'],
  [{ role: 'user', content: [{ text: 'x' }] }, 'content.0.type', 'missing'],
  [{ role: 'user', content: [{ type: 'video' }] }, 'content.0.type', 'literal_error'],
  [{ role: 'user', content: [{ type: 'text' }] }, 'content.0.text', 'missing'],
  [
    { role: 'user', content: [{ type: 'image_url', image_url: {} }] },
    'content.0.image_url.url',
    'missing',
  ],
  [{ role: 'user', content: 'x', name: 5 }, 'name', 'string_type'],
  [{ role: 'assistant', function_call: { name: 'f' } }, 'function_call.arguments', 'missing'],
  [
    { role: 'assistant', tool_calls: [{ ...call('f'), type: 'x' }] },
    'tool_calls.0.type',
    'literal_error',
  ],
  [{ role: 'assistant', tool_calls: [{ ...call('f'), id: 1 }] }, 'tool_calls.0.id', 'string_type'],
])('parseChatRequest refuses the message %j at %s', (message, loc, type) =>
  expect(locAndType(faultsOfMessage(message))).toEqual([[`body.messages.0.${loc}`, type]]),
)

it.each([
  ['{"model":', 'body.9', 'json_invalid'],
  ['{"a":1,"a":2}', 'body.a', 'duplicate_key'],
  ['{"messages":[{"n":9007199254740993}]}', 'body.messages.0.n', 'unsafe_integer'],
  ['{"seed":1e999}', 'body.seed', 'number_overflow'],
  ['{"user":"\\ud800"}', 'body.user', 'lone_surrogate'],
  [`${'['.repeat(200)}`, expect.stringContaining('body.0'), 'too_deep'],
])('parseChatRequest refuses JSON that does not mean one thing only: %s', (body, loc, type) =>
  expect(locAndType(faultsOf(body))).toEqual([[loc, type]]),
)

it('parseChatRequest refuses bytes that are not UTF-8', () => {
  expect(() => validateBody(chatRequest, Uint8Array.of(0x22, 0xff, 0x22))).toThrow(ValidationError)
})

it('parseChatRequest answers nearly a million faults with a bounded list, in bounded time', () => {
  const body = `{"model":"m","messages":[${'1,'.repeat(9e5)}1]}`
  const before = process.cpuUsage()
  expect(faultsOf(body)).toHaveLength(FAULTS_MAX)
  expect(process.cpuUsage(before).user).toBeLessThan(2_000_000)
})

it('parseChatRequest cuts an overlong name in the loc of its fault', () => {
  const name = 'k'.repeat(1e5)
  const [fault] = faultsOf(`{"${name}":1,"${name}":2}`)
  expect(fault?.loc).toEqual(['body', 'k'.repeat(LOC_NAME_LENGTH_MAX)])
})

function call(name: string) {
  return { id: 'c1', type: 'function', function: { name, arguments: '{}' } }
}

function format(schema: object) {
  return { response_format: { type: 'json_schema', json_schema: schema } }
}
