import { expect, it } from 'vitest'
import type { JsonObject } from '../../../attestation/json/value.ts'
import { estimateUsage } from '../../../src/chat/chat-size.ts'

const text = 'a'.repeat(40)

it.each<[string, JsonObject, number]>([
  ['a text', { messages: [{ role: 'user', content: text }] }, 14],
  ['parts of text', { messages: [{ role: 'user', content: [{ type: 'text', text }] }] }, 14],
  [
    'an image, whose data does not count',
    { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: text } }] }] },
    4,
  ],
  [
    'no content',
    {
      messages: [
        { role: 'assistant', content: null },
        { role: 'user', content: text },
      ],
    },
    18,
  ],
])('estimates the prompt of %s', (_, request, promptTokens) => {
  expect(estimateUsage(request, 9)).toEqual({
    prompt_tokens: promptTokens,
    completion_tokens: 3,
    total_tokens: promptTokens + 3,
    estimated: true,
  })
})
