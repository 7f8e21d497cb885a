import { describe, expect, it } from 'vitest'
import { canonicalRequest } from '../../../attestation/dialects/dialect.ts'
import { findHiddenInMessages } from '../../../attestation/dialects/messages/request.ts'
import { findHiddenInResponses } from '../../../attestation/dialects/responses/request.ts'
import type { JsonObject } from '../../../attestation/json/value.ts'

describe('a Responses request', () => {
  const hidden: Readonly<Record<string, readonly [JsonObject, readonly (string | number)[]]>> = {
    'the response before': [{ previous_response_id: 'resp_1' }, ['previous_response_id']],
    'a conversation': [{ conversation: { id: 'conv_1' } }, ['conversation']],
    'a stored prompt': [{ prompt: { id: 'pmpt_1' } }, ['prompt']],
    'a background call': [{ background: true }, ['background']],
    'a reference to an item': [{ input: [{ type: 'item_reference', id: 'msg_1' }] }, ['input', 0]],
    'a reference without a type': [{ input: [{ id: 'msg_1' }] }, ['input', 0]],
    'a file by its id': [
      {
        input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'file_1' }] }],
      },
      ['input', 0, 'content', 0],
    ],
    'a container by its id': [
      { tools: [{ type: 'code_interpreter', container: 'cntr_1' }] },
      ['tools', 0],
    ],
  }
  for (const [what, [request, path]] of Object.entries(hidden))
    it(`a request may not hide ${what}`, () => {
      expect(findHiddenInResponses(request)?.path).toEqual(path)
    })

  it('a request may say all that it asks', () => {
    const request: JsonObject = {
      model: 'm',
      store: true,
      background: false,
      previous_response_id: null,
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
        { type: 'input_image', image_url: 'data:image/png;base64,AA==', file_id: null },
      ],
      tools: [{ type: 'code_interpreter', container: { type: 'auto' } }],
    }
    expect(findHiddenInResponses(request)).toBeNull()
  })
})

describe('a Messages request', () => {
  const hidden: Readonly<Record<string, readonly [JsonObject, readonly (string | number)[]]>> = {
    'a thread': [{ thread: { id: 'thread_1' } }, ['thread']],
    'a container': [{ container: 'cntr_1' }, ['container']],
    'a container in an object': [{ container: { id: 'cntr_1', skills: [] } }, ['container']],
    'a file by its id': [
      {
        messages: [
          {
            role: 'user',
            content: [{ type: 'document', source: { type: 'file', file_id: 'file_1' } }],
          },
        ],
      },
      ['messages', 0, 'content', 0, 'source'],
    ],
  }
  for (const [what, [request, path]] of Object.entries(hidden))
    it(`a request may not hide ${what}`, () => {
      expect(findHiddenInMessages(request)?.path).toEqual(path)
    })

  it('a request may say all that it asks, also what looks like a file in the input of a tool', () => {
    const request: JsonObject = {
      model: 'm',
      max_tokens: 5,
      container: null,
      messages: [
        { role: 'user', content: 'Hello' },
        {
          role: 'assistant',
          content: [
            { type: 'tool_use', id: 't', name: 'n', input: { type: 'file', file_id: 'x' } },
          ],
        },
      ],
    }
    expect(findHiddenInMessages(request)).toBeNull()
  })
})

describe('the text that is hashed of a request', () => {
  it('differs between dialects of one body, and keeps nulls', () => {
    const body = { model: 'm', messages: [], stream: null }
    const [messages, chat] = ['messages', 'chat'].map((name) => canonicalRequest(name, {}, body))
    expect(messages).toBe(
      '{"body":{"messages":[],"model":"m","stream":null},"dialect":"messages","headers":{}}',
    )
    expect(chat).not.toBe(messages)
  })
})
