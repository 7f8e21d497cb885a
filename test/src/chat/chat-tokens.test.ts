import { expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { ESTIMATE_MAX } from '#src/accounts/limits/limiter.ts'
import { chatRequest } from '#src/chat/chat-request.ts'
import {
  estimateChatTokens,
  estimateDialectTokens,
  estimateUsage,
  PARSED_LENGTH_MAX,
  usedTokensOf,
} from '#src/chat/chat-tokens.ts'
import { validateBody } from '../../support/validate-body.ts'

const sizeOf = (request: object) =>
  validateBody(chatRequest, new TextEncoder().encode(JSON.stringify({ model: 'm', ...request })))
    .size
const user = (content: unknown) => ({ messages: [{ role: 'user', content }] })

it('the size of a chat request counts the bytes of all texts', () => {
  expect(sizeOf(user('hello'))).toMatchObject({
    messages: 1,
    promptBytes: 5,
    attachments: 0,
    answers: { count: 1, tokensMax: null },
  })
  expect(sizeOf(user('grüß 😀')).promptBytes).toBe(11)
  expect(sizeOf(user([{ type: 'text', text: 'abc' }])).promptBytes).toBe(3)
  const called = { role: 'assistant', function_call: { name: 'f', arguments: '{}' } }
  expect(sizeOf({ messages: [called] }).promptBytes).toBe('{"name":"f","arguments":"{}"}'.length)
  const tools = [{ type: 'function', function: { name: 'f' } }]
  expect(sizeOf({ ...user(''), tools }).promptBytes).toBe(JSON.stringify(tools).length)
})

it('the size of a chat request counts pictures and files, but not their bytes', () => {
  const url = `data:image/png;base64,${'A'.repeat(100_000)}`
  const size = sizeOf(
    user([
      { type: 'image_url', image_url: { url } },
      { type: 'text', text: 'what?' },
    ]),
  )
  expect(size).toMatchObject({ promptBytes: 5, attachments: 1 })
})

it.each([
  [{}, null],
  [{ max_tokens: 5 }, 5],
  [{ max_tokens: 5, max_completion_tokens: 7 }, 7],
  [{ max_tokens: 7, max_completion_tokens: 5 }, 7],
  [{ max_tokens: null, max_completion_tokens: 1.5 }, 2],
  [{ max_tokens: 5, max_completion_tokens: 'many' }, null],
  [{ max_tokens: 5, max_completion_tokens: -1 }, null],
  [{ max_output_tokens: 5 }, null],
])('the longest answer to a chat with %j is %j', (given, most) => {
  expect(sizeOf({ ...user('a'), ...given }).answers).toEqual({ count: 1, tokensMax: most })
})

it.each([
  ['responses', { max_output_tokens: 5, max_tokens: 9 }, { count: 1, tokensMax: 5 }],
  ['responses', { max_tokens: 5 }, { count: 1, tokensMax: null }],
  ['messages', { max_tokens: 5, max_output_tokens: 1 }, { count: 1, tokensMax: 5 }],
  ['messages', { max_output_tokens: 5 }, { count: 1, tokensMax: null }],
  ['completions', { max_tokens: 5, n: 2 }, { count: 2, tokensMax: 5 }],
  ['completions', { max_tokens: 5, n: '9' }, { count: 9, tokensMax: 5 }],
  ['completions', { max_tokens: 5, n: 2, best_of: 4 }, { count: 4, tokensMax: 5 }],
  ['completions', { max_tokens: 5, n: 2, prompt: ['a', 'b'] }, { count: 4, tokensMax: 5 }],
  ['completions', { max_tokens: 5, prompt: [[1], [2], [3]] }, { count: 3, tokensMax: 5 }],
  ['completions', { max_tokens: 5, prompt: [1, 2, 3] }, { count: 1, tokensMax: 5 }],
] as const)('a request of %s with %j asks for the answers %j', (dialect, request, answers) => {
  expect(estimateDialectTokens(dialect, request).answers).toEqual(answers)
})

it('the estimate of a chat request is the prompt, and the longest answer once for each choice', () => {
  const size = sizeOf({ ...user('x'.repeat(40)), max_tokens: 100, n: 3 })
  expect(estimateChatTokens(size)).toMatchObject({ promptTokens: 14, estimate: 314 })
})

it('the estimate of a chat request is a whole number within bounds, whatever is asked for', () => {
  for (const most of [1.5, 1e308, Number.MAX_SAFE_INTEGER]) {
    const { estimate } = estimateChatTokens(
      sizeOf({ ...user('x'), max_completion_tokens: most, n: 128 }),
    )
    expect(Number.isSafeInteger(estimate)).toBe(true)
    expect(estimate).toBeLessThanOrEqual(ESTIMATE_MAX)
  }
})

const usedOf = (usage: unknown) => usedTokensOf(JSON.stringify({ choices: [], usage }), 10)
const used = (usage: unknown) => usedOf(usage).tokens
/** Prompt of 10, and a token for 4 characters. */
const estimated = (usage: unknown) =>
  10 + Math.ceil(JSON.stringify({ choices: [], usage }).length / 4)

it('the used tokens of a completion are the total that it states', () => {
  expect(used({ prompt_tokens: 3, completion_tokens: 4, total_tokens: 9 })).toBe(9)
  expect(used({ total_tokens: 0 })).toBe(0)
})

it('the used tokens of a completion are the sum when only the parts are stated', () => {
  expect(used({ prompt_tokens: 3, completion_tokens: 4 })).toBe(7)
})

it('the prompt of a completion is what it states beside the answer, else the estimate', () => {
  expect(usedOf({ prompt_tokens: 3, completion_tokens: 4 }).prompt).toBe(3)
  expect(usedOf({ prompt_tokens: 3, total_tokens: 9 }).prompt).toBe(10)
})

it.each([
  null,
  {},
  { total_tokens: -5 },
  { total_tokens: 1.5 },
  { total_tokens: '9' },
  { total_tokens: 1e300 },
])('the used tokens of a completion are estimated for the usage %j', (usage) =>
  expect(used(usage)).toBe(estimated(usage)),
)

it('the used tokens of a completion are never more than an estimate can be', () => {
  expect(used({ total_tokens: Number.MAX_SAFE_INTEGER })).toBe(ESTIMATE_MAX)
})

it('the used tokens of a completion are estimated when it is too long to be parsed for them', () => {
  const long = JSON.stringify({
    choices: ['x'.repeat(PARSED_LENGTH_MAX)],
    usage: { total_tokens: 1 },
  })
  expect(usedTokensOf(long, 10)).toEqual({ tokens: 10 + Math.ceil(long.length / 4), prompt: 10 })
})

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
])('the estimated prompt tokens of %s follow from its text', (_, request, promptTokens) => {
  expect(estimateUsage(request, 9)).toEqual({
    prompt_tokens: promptTokens,
    completion_tokens: 3,
    total_tokens: promptTokens + 3,
    estimated: true,
  })
})

// An image_generation_call must be sent back with its result.
it.each<JsonObject>([
  { type: 'image_generation_call', result: 'iVBOR'.repeat(100_000) },
  { type: 'input_file', file_data: 'JVBER'.repeat(100_000) },
  { type: 'input_image', image_url: `data:image/png;base64,${'iVBOR'.repeat(100_000)}` },
])('the estimate counts a file of $type as one, not by its bytes', (item) => {
  const { promptTokens } = estimateDialectTokens('responses', { input: [item] })
  expect(promptTokens).toBeLessThan(1_100)
})

it('the estimate counts the words of a result', () => {
  const input = [{ result: 'two words '.repeat(4_000) }]
  const { promptTokens } = estimateDialectTokens('responses', { input })
  expect(promptTokens).toBeGreaterThanOrEqual(10_000)
})
