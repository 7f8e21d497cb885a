import { describe, expect, it } from 'vitest'
import { ESTIMATE_MAX } from '../../../src/accounts/limits/limiter.ts'
import { validateBody } from '../../../src/api/validation.ts'
import { chatRequest } from '../../../src/chat/chat-request.ts'
import { estimateChatTokens, estimatePromptTokens } from '../../../src/chat/token-estimates.ts'

const sizeOf = (request: object) =>
  validateBody(chatRequest, new TextEncoder().encode(JSON.stringify({ model: 'm', ...request })))
    .size
const user = (content: unknown) => ({ messages: [{ role: 'user', content }] })

describe('the size of a chat request', () => {
  it('counts the bytes of all texts', () => {
    expect(sizeOf(user('hello'))).toMatchObject({
      messages: 1,
      promptBytes: 5,
      attachments: 0,
      choices: 1,
    })
    expect(sizeOf(user('grüß 😀')).promptBytes).toBe(11)
    expect(sizeOf(user([{ type: 'text', text: 'abc' }])).promptBytes).toBe(3)
    const called = { role: 'assistant', function_call: { name: 'f', arguments: '{}' } }
    expect(sizeOf({ messages: [called] }).promptBytes).toBe('{"name":"f","arguments":"{}"}'.length)
    const tools = [{ type: 'function', function: { name: 'f' } }]
    expect(sizeOf({ ...user(''), tools }).promptBytes).toBe(JSON.stringify(tools).length)
  })

  it('counts pictures and files, but not their bytes', () => {
    const url = `data:image/png;base64,${'A'.repeat(100_000)}`
    const size = sizeOf(
      user([
        { type: 'image_url', image_url: { url } },
        { type: 'text', text: 'what?' },
      ]),
    )
    expect(size).toMatchObject({ promptBytes: 5, attachments: 1 })
  })

  it('takes the newer name of the longest answer before the older', () => {
    expect(sizeOf({ ...user('a'), max_tokens: 5 }).answerTokensMax).toBe(5)
    expect(sizeOf({ ...user('a'), max_tokens: 5, max_completion_tokens: 7 }).answerTokensMax).toBe(
      7,
    )
    expect(sizeOf({ ...user('a'), max_tokens: null }).answerTokensMax).toBeNull()
    expect(sizeOf({ ...user('a'), max_completion_tokens: 'many' }).answerTokensMax).toBeNull()
  })
})

describe('the estimate of a chat request', () => {
  it('is the prompt, and the longest answer once for each choice', () => {
    const size = sizeOf({ ...user('x'.repeat(40)), max_tokens: 100, n: 3 })
    expect(estimatePromptTokens(size)).toBe(14)
    expect(estimateChatTokens(size)).toBe(314)
  })

  it('is a whole number within bounds, whatever is asked for', () => {
    for (const most of [1.5, 1e308, Number.MAX_SAFE_INTEGER]) {
      const estimate = estimateChatTokens(
        sizeOf({ ...user('x'), max_completion_tokens: most, n: 128 }),
      )
      expect(Number.isSafeInteger(estimate)).toBe(true)
      expect(estimate).toBeLessThanOrEqual(ESTIMATE_MAX)
    }
  })
})
