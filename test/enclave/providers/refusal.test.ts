import { describe, expect, it } from 'vitest'
import {
  describeProviderError,
  PROVIDER_CODE_CHARACTERS_MAX,
  PROVIDER_MESSAGE_CHARACTERS_MAX,
  parseRefusal,
} from '../../../enclave/providers/refusal.ts'

const refuse = (body: string, headers = {}) =>
  parseRefusal({ status: 429, headers, body: Buffer.from(body) }).fault

describe('parseRefusal', () => {
  it('parseRefusal gives the provider’s status, message, code and whole seconds of retry-after', () => {
    expect(
      refuse('{"error":{"message":"slow down","code":"rate_limit"}}', { 'retry-after': '20' }),
    ).toEqual({
      code: 'provider_refused',
      status: 429,
      message: 'slow down',
      provider_code: 'rate_limit',
      retry_after_seconds: 20,
    })
  })

  it.each([
    ['no JSON', '<html>'],
    ['nothing', ''],
    ['no object', '7'],
    ['messages that are no text', '{"error":{"message":{"a":1}},"message":[]}'],
  ])('parseRefusal has a text of its own for %s', (_, body) => {
    expect(refuse(body)).toEqual({
      code: 'provider_refused',
      status: 429,
      message: 'The provider gave no reason.',
    })
  })

  it('parseRefusal leaves a retry-after out that is a date, negative, or huge', () => {
    for (const value of ['Wed, 21 Oct 2026 07:28:00 GMT', '-1', '1000000', '1.5'])
      expect(refuse('{}', { 'retry-after': value })).not.toHaveProperty('retry_after_seconds')
  })
})

describe('describeProviderError', () => {
  it.each([
    ['OpenAI’s', { error: { message: 'm', type: 't', code: null } }, { message: 'm', code: 't' }],
    [
      'Anthropic’s',
      { type: 'error', error: { type: 't', message: 'm' } },
      { message: 'm', code: 't' },
    ],
    [
      'Google’s',
      [{ error: { code: 400, message: 'm', status: 'INVALID' } }],
      { message: 'm', code: 'INVALID' },
    ],
    [
      'Mistral’s',
      { object: 'error', message: 'm', type: 't', code: '3' },
      { message: 'm', code: '3' },
    ],
    ['xAI’s', { code: 'c', error: 'm' }, { message: 'm', code: 'c' }],
    ['FastAPI’s', { detail: 'm' }, { message: 'm', code: null }],
  ])('describeProviderError reads an error in %s form', (_, body, expected) => {
    expect(describeProviderError(body)).toEqual(expected)
  })

  it('describeProviderError cuts a text that is too long, and no character in half', () => {
    const { message, code } = describeProviderError({
      error: { message: `a${'😀'.repeat(2000)}`, code: 'c'.repeat(500) },
    })
    expect(message).toHaveLength(PROVIDER_MESSAGE_CHARACTERS_MAX)
    expect(message.isWellFormed()).toBe(true)
    expect(code).toHaveLength(PROVIDER_CODE_CHARACTERS_MAX)
  })
})
