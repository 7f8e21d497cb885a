import { expect, it } from 'vitest'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { describeExchange } from '#attestation/report/describe-exchange.ts'
import {
  linesOf,
  SHOWN_MESSAGES_MAX,
  SHOWN_TEXT_LENGTH_MAX,
} from '#attestation/report/shown-exchange.ts'

type Dialect = 'responses' | 'messages'

/** Sender and text of what was asked. */
const asked = (dialect: Dialect, body: JsonObject, headers: JsonObject = {}) =>
  describeExchange({ dialect, request: { dialect, headers, body }, response: null }).asked?.map(
    ({ who, text }) => `${who} | ${text}`,
  )
const said = (dialect: Dialect, response: JsonObject) =>
  describeExchange({ dialect, request: null, response }).said?.map(
    ({ who, text }) => `${who} | ${text}`,
  )

/** The SHA-256 of `abc`, the first example of FIPS 180-4. */
const DIGEST = 'SHA-256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad, 3 bytes'
const REMOTE = 'https://images.example/a.png'

it('a request of Responses shows its parameters, its tools by their names, and its headers without demands', () => {
  const body: JsonObject = {
    model: 'm',
    input: 'Hello',
    instructions: 'Be short.',
    temperature: 0,
    top_p: null,
    tools: [
      { type: 'function', name: 'read_file', parameters: { type: 'object' } },
      { type: 'web_search' },
      { type: 'function', name: 'a, b' },
      7,
    ],
    affidavit: { nonce: 'ab'.repeat(16) },
  }
  const headers = { 'openai-beta': 'x=1', 'affidavit-call': 'e30' }
  expect(asked('responses', body, headers)).toEqual([
    'model | m',
    'with | temperature: 0\ntools: read_file, web_search, "a, b", 7',
    'headers | openai-beta: x=1',
    'system | Be short.',
    'user | Hello',
  ])
})

it('a request of Responses shows images, tool calls with their answers, thinking and other items', () => {
  const input: Json = [
    {
      role: 'user',
      content: [
        { type: 'input_text', text: 'Look' },
        { type: 'input_image', image_url: 'data:image/png;base64,YWJj' },
        { type: 'input_image', image_url: REMOTE },
        { type: 'input_image', file_id: 'file_1' },
      ],
    },
    { type: 'reasoning', id: 'r', summary: [{ type: 'summary_text', text: 'Hm.' }] },
    { type: 'reasoning', id: 's', summary: [], encrypted_content: 'gAAA' },
    { type: 'reasoning', id: 't', summary: [], content: [{ type: 'reasoning_text', text: 'O' }] },
    { type: 'function_call', call_id: 'c', name: 'read_file', arguments: '{"path":"a"}' },
    { type: 'function_call_output', call_id: 'c', output: 'text of a' },
    { type: 'computer_call', id: 'x', action: { type: 'click' } },
  ]
  expect(asked('responses', { model: 'm', input })).toEqual([
    'model | m',
    'user | Look',
    `attached | image/png: ${DIGEST}`,
    `attached | input_image: ${REMOTE}`,
    'other | input_image: {"type":"input_image","file_id":"file_1"}',
    'thinks | Hm.',
    'thinks | [encrypted]',
    'thinks | O',
    'calls | read_file({"path":"a"})',
    'tool | read_file: text of a',
    'other | computer_call: {"type":"computer_call","id":"x","action":{"type":"click"}}',
  ])
})

it('a request of Responses that a caller kept as its body alone shows the same items', () => {
  const body = { model: 'm', input: 'Hello' }
  const { asked } = describeExchange({ dialect: 'responses', request: body, response: null })
  expect(asked?.map(({ text }) => text)).toEqual(['m', 'Hello'])
})

it('an answer of Responses shows its texts, its refusal, its calls, and why it ended', () => {
  const output: Json = [
    {
      type: 'message',
      role: 'assistant',
      content: [
        { type: 'output_text', text: 'Yes' },
        { type: 'refusal', refusal: 'No' },
      ],
    },
    { type: 'custom_tool_call', call_id: 'c', name: 'sh', input: 'ls' },
  ]
  const incomplete = { status: 'incomplete', incomplete_details: { reason: 'content_filter' } }
  expect(said('responses', { output, ...incomplete })).toEqual([
    'says | Yes',
    'refuses | No',
    'calls | sh(ls)',
    'ended | incomplete: content_filter',
  ])
})

it('a request of Messages shows its system prompt, its blocks, its tools and its headers', () => {
  const body: JsonObject = {
    model: 'm',
    max_tokens: 9,
    system: [{ type: 'text', text: 'Be short.', cache_control: { type: 'ephemeral' } }],
    tools: [
      { name: 'read_file', input_schema: {} },
      { type: 'bash_20250124', name: 'bash' },
    ],
    messages: [
      {
        role: 'user',
        content: [
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'YWJj' } },
          { type: 'image', source: { type: 'url', url: REMOTE } },
          { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'abc' } },
          { type: 'text', text: 'Look' },
        ],
      },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'Hm.', signature: 'c2ln' },
          { type: 'redacted_thinking', data: 'ZGF0YQ==' },
          { type: 'tool_use', id: 't', name: 'read_file', input: { path: 'a' } },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 't', is_error: true, content: 'missing' },
          { type: 'tool_result', tool_use_id: 'unknown', content: 'a text' },
        ],
      },
    ],
  }
  expect(asked('messages', body, { 'anthropic-version': '2023-06-01' })).toEqual([
    'model | m',
    'with | max_tokens: 9\ntools: read_file, bash',
    'headers | anthropic-version: 2023-06-01',
    'system | Be short.',
    `attached | image/png: ${DIGEST}`,
    `attached | image: ${REMOTE}`,
    `attached | text/plain: ${DIGEST}`,
    'user | Look',
    'thinks | Hm.',
    'thinks | [encrypted]',
    'calls | read_file({"path":"a"})',
    'tool failed | read_file: missing',
    'tool | : a text',
  ])
})

it('an answer of Messages shows thinking, texts, calls, unknown blocks as JSON, and why it ended', () => {
  const content: Json = [
    { type: 'thinking', thinking: 'Hm.', signature: '' },
    { type: 'redacted_thinking', data: 'ZGF0YQ==' },
    { type: 'text', text: 'Hi' },
    { type: 'server_tool_use', id: 's', name: 'web_search', input: { query: 'q' } },
    { type: 'of_the_future', value: 1 },
    'odd',
  ]
  expect(said('messages', { content, stop_reason: 'refusal', stop_sequence: null })).toEqual([
    'thinks | Hm.',
    'thinks | [encrypted]',
    'says | Hi',
    'calls | web_search({"query":"q"})',
    'other | of_the_future: {"type":"of_the_future","value":1}',
    'says | odd',
    'ended | refusal',
  ])
})

const HOSTILE = '\u001b[2J\u202e\r\u2028<b>'

it.each(['responses', 'messages'] as const)(
  'items of %s are shown as escapes alone, wherever they hold control characters',
  (dialect) => {
    const parts = [{ type: HOSTILE, [HOSTILE]: HOSTILE }]
    const messages = [{ role: HOSTILE, content: HOSTILE }, ...parts]
    const tools = [{ name: HOSTILE }]
    const body = { model: HOSTILE, input: messages, messages, tools, [HOSTILE]: HOSTILE }
    const request = { dialect, headers: {}, body }
    const call = { type: 'tool_use', name: HOSTILE, input: { [HOSTILE]: HOSTILE } }
    const output = [{ type: 'function_call', name: HOSTILE, arguments: HOSTILE }, ...parts]
    const response = { content: [call, ...parts], output, status: HOSTILE, stop_reason: HOSTILE }
    const { asked, said } = describeExchange({ dialect, request, response })
    const shown = [...(asked ?? []), ...(said ?? [])].map(linesOf)
    expect(shown.length).toBeGreaterThan(6)
    for (const { who, lines } of shown)
      expect(who + lines.join('')).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u)
  },
)

it.each(['responses', 'messages'] as const)(
  'many and long items of %s are bounded, and what is left out is counted',
  (dialect) => {
    const text = 'x'.repeat(SHOWN_TEXT_LENGTH_MAX + 7)
    const messages = Array(10_000).fill({ role: 'user', content: text })
    const blocks = Array(100).fill({ type: 'text', text })
    const body = { model: 'm', input: messages, messages }
    const { asked, said } = describeExchange({
      dialect,
      request: { dialect, headers: {}, body },
      response: { output: [{ role: 'assistant', content: blocks }], content: blocks },
    })
    const longParameter = 1
    expect(asked).toHaveLength(1 + longParameter + 1 + SHOWN_MESSAGES_MAX)
    expect(asked?.at(2)?.text).toBe(`${10_000 - SHOWN_MESSAGES_MAX} earlier items`)
    expect(asked?.at(-1)).toMatchObject({ who: 'user', left_out: 7 })
    expect(said?.at(-1)?.text).toBe(`${100 - SHOWN_MESSAGES_MAX} items more`)
  },
)

it.each<[string, JsonObject]>([
  ['nothing', {}],
  ['numbers', { input: 7, messages: 7, system: 7, instructions: 7, tools: 7 }],
  ['lists of odd values', { input: [null, 7, []], messages: [null, 7, []], tools: [null, []] }],
  ['odd contents', { input: [{ content: [null] }], messages: [{ content: [null, 7] }] }],
])('a body of %s is described without a fault', (_, body) => {
  for (const dialect of ['responses', 'messages'] as const) {
    expect(asked(dialect, body)?.at(0)).toBe('model | null')
    for (const value of Object.values(body))
      expect(said(dialect, { output: value, content: value })).toBeInstanceOf(Array)
  }
})
