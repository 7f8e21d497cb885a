import { expect, it } from 'vitest'
import { hashedHeaders } from '#attestation/dialects/call-request.ts'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { findHiddenInMessages } from '#attestation/dialects/messages/request.ts'
import { findHiddenInResponses } from '#attestation/dialects/responses/request.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { rowsByCode } from '../../support/case-table.ts'

const inTool = (tool: JsonObject) => ({ tools: [tool] })
const inItem = (item: JsonObject) => ({ input: [item] })
const inPart = (part: JsonObject) => inItem({ role: 'user', content: [part] })
const code = { type: 'code_interpreter' }

it.each<[string, JsonObject, string]>([
  ['the response before', { previous_response_id: 'resp_1' }, 'previous_response_id'],
  ['a conversation', { conversation: { id: 'conv_1' } }, 'conversation'],
  ['a stored prompt', { prompt: { id: 'pmpt_1' } }, 'prompt'],
  ['a background call', { background: true }, 'background'],
  ['a background call in other words', { background: 'true' }, 'background'],
  ['a reference to an item', inItem({ type: 'item_reference', id: 'msg_1' }), 'input.0'],
  ['a reference without a type', inItem({ id: 'msg_1' }), 'input.0'],
  ['a reference with an empty type', inItem({ id: 'msg_1', type: '', role: null }), 'input.0'],
  ['a generated image by its id', inItem({ type: 'image_generation_call', id: 'ig_1' }), 'input.0'],
  ['a file by its id', inPart({ type: 'input_file', file_id: 'f' }), 'input.0.content.0'],
  [
    'a file by its id in a part of a new type',
    inPart({ type: 'input_video', file_id: 'f' }),
    'input.0.content.0',
  ],
  [
    'files of a container',
    inTool({ ...code, container: { type: 'auto', file_ids: ['f'] } }),
    'tools.0.container',
  ],
  ['a container by its id', inTool({ ...code, container: 'cntr_1' }), 'tools.0'],
  [
    'a container of a shell',
    inTool({ type: 'shell', environment: { type: 'container_reference', container_id: 'c' } }),
    'tools.0.environment',
  ],
  [
    'a skill by its id',
    inTool({
      type: 'shell',
      environment: { skills: [{ type: 'skill_reference', skill_id: 's' }] },
    }),
    'tools.0.environment.skills.0',
  ],
  [
    'a mask by its id',
    inTool({ type: 'image_generation', input_image_mask: { file_id: 'f' } }),
    'tools.0.input_image_mask',
  ],
])('a Responses request may not hide %s', (_, request, path) => {
  expect(findHiddenInResponses(request)?.path.join('.')).toBe(path)
})

it('a Responses request may say all that it asks', () => {
  const request: JsonObject = {
    model: 'm',
    store: true,
    background: false,
    previous_response_id: '',
    input: [
      { role: 'user', content: 'Hello' },
      { type: 'message', role: 'assistant', id: 'msg_1', content: [] },
      {
        type: 'function_call',
        id: 'fc_1',
        call_id: 'c',
        name: 'n',
        arguments: '{"file_id":"x"}',
      },
      {
        role: 'assistant',
        content: [
          {
            type: 'output_text',
            text: 't',
            annotations: [
              { type: 'file_citation', file_id: 'f' },
              { type: 'container_file_citation', container_id: 'cntr_1', file_id: 'f' },
            ],
          },
        ],
      },
      { type: 'image_generation_call', id: 'ig_1', result: 'AA==' },
      { type: 'computer_call', id: 'cu_1', pending_safety_checks: [{ id: 'sc_1' }] },
      { type: 'file_search_call', id: 'fs_1', results: [{ file_id: 'f', text: 't' }] },
      { type: 'input_image', image_url: 'data:image/png;base64,AA==', file_id: null },
    ],
    tools: [
      { type: 'code_interpreter', container: { type: 'auto' } },
      { type: 'function', name: 'n', parameters: { properties: { file_ids: {} } } },
    ],
  }
  expect(findHiddenInResponses(request)).toBeNull()
})

const inContent = (block: JsonObject) => ({ messages: [{ role: 'user', content: [block] }] })

it.each(
  rowsByCode<JsonObject>({
    thread: { 'a thread': { thread: { id: 'thread_1' } } },
    container: {
      'a container': { container: 'cntr_1' },
      'a container in an object': { container: { id: 'cntr_1', skills: [] } },
      'a skill by its id': { container: { skills: [{ type: 'custom', skill_id: 'skill_1' }] } },
      'a skill of an unknown type': { container: { skills: [{ skill_id: 's' }] } },
      'skills in another form': { container: { skills: 'skill_1' } },
    },
    'messages.0.content.0.source': {
      'a file without a type': inContent({ type: 'image', source: { file_id: 'f' } }),
      'a file by its id': inContent({
        type: 'document',
        source: { type: 'file', file_id: 'file_1' },
      }),
    },
  }),
)('a Messages request may not hide %s', (_, path, request) => {
  expect(findHiddenInMessages(request)?.path.join('.')).toBe(path)
})

it('a Messages request may say all that it asks, also what looks like a file in the input of a tool', () => {
  const request: JsonObject = {
    model: 'm',
    max_tokens: 5,
    container: { skills: [{ type: 'anthropic', skill_id: 'pdf' }] },
    messages: [
      { role: 'user', content: 'Hello' },
      {
        role: 'assistant',
        content: [{ type: 'tool_use', id: 't', name: 'n', input: { type: 'file', file_id: 'x' } }],
      },
    ],
  }
  expect(findHiddenInMessages(request)).toBeNull()
})

const demands = { session: { id: '5e'.repeat(16), n: 0, previous: null } }
const requestOf = (header: unknown, body: JsonObject = {}): JsonObject => ({
  dialect: 'messages',
  headers: { 'affidavit-call': header as string },
  body,
})
const encode = (text: string) => Buffer.from(text).toString('base64url')

it('the demands of a call are in its header, or in its body', () => {
  const { messages, chat } = DIALECTS
  expect(messages.demandsOf(requestOf(encode(JSON.stringify(demands))))).toEqual(demands)
  const inBody = { dialect: 'messages', headers: {}, body: { affidavit: demands } }
  expect(messages.demandsOf(inBody)).toEqual(demands)
  expect(messages.demandsOf({ ...inBody, body: {} })).toEqual({})
  expect(chat.demandsOf({ affidavit: demands })).toEqual(demands)
})

it.each<[string, unknown]>([
  ['is a number', 1],
  ['has padding', 'e30='],
  ['is empty', ''],
  ['is not JSON', 'AAAA'],
  ['is too long', 'A'.repeat(8_193)],
  ['has an unknown demand', encode('{"a":1}')],
  ['names a member twice', encode('{"nonce":"00","nonce":"00"}')],
])('a header with demands that %s is refused', (_, value) => {
  expect(() => DIALECTS.messages.demandsOf(requestOf(value))).toThrow()
})

it('demands in both header and body are refused', () => {
  const both = requestOf(encode(JSON.stringify(demands)), { affidavit: demands })
  expect(() => DIALECTS.messages.demandsOf(both)).toThrow('not in both')
})

it.each<[string, JsonObject]>([
  ['have headers', { nonce: 'ab'.repeat(16), headers: { 'anthropic-version': '2023-06-01' } }],
  ['have empty headers', { headers: {} }],
  ['have no headers', { nonce: 'ab'.repeat(16) }],
])('demands in a header are refused beside demands in the body that %s', (_, affidavit) => {
  const { messages } = DIALECTS
  const body = { model: 'm', affidavit }
  const sent = { 'affidavit-call': encode(JSON.stringify(demands)), 'anthropic-beta': 'one' }
  const headers = hashedHeaders('messages', body, sent)
  expect(() => messages.demandsOf(messages.requestOf(body, headers))).toThrow('not in both')
})
