import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { refusalFault } from '#enclave/call-fault.ts'
import {
  errorIn,
  REFUSAL_CODE_CHARACTERS_MAX,
  REFUSAL_MESSAGE_CHARACTERS_MAX,
  readReason,
  readRefusal,
} from '#enclave/protocol/refusal.ts'

const refuse = (body: string, headers = {}) => readRefusal({ headers, body: Buffer.from(body) })

describe('readRefusal', () => {
  const EARLY = 'Wed, 21 Oct 2026 07:28:00 GMT'
  const LATE = 'Wed, 21 Oct 2026 07:28:30 GMT'
  it.each<[string, object, number | null]>([
    ['seconds', { 'retry-after': '20' }, 20],
    // https://github.com/api7/aisix/issues/144
    ['seconds with a fraction', { 'retry-after': '7.66' }, 7.66],
    ['milliseconds', { 'retry-after-ms': '1500', 'retry-after': '9' }, 1.5],
    ['a date, counted from the answer’s own', { 'retry-after': LATE, date: EARLY }, 30],
    ['a date that is past', { 'retry-after': EARLY, date: LATE }, 0],
    ['a date without the answer’s own', { 'retry-after': EARLY }, null],
    ['more than a day', { 'retry-after': '1000000' }, 86_400],
    ['a negative number', { 'retry-after': '-1' }, null],
    ['a number that is none', { 'retry-after': '1e9' }, null],
  ])('readRefusal reads a wait in %s', (_, headers, seconds) => {
    expect(refuse('{}', headers).retryAfterSeconds).toBe(seconds)
  })

  it.each<[string, string, string | null]>([
    ['a page', ' <!DOCTYPE html><html>Bad Gateway</html>', 'it answered with an HTML page'],
    ['plain text', 'upstream connect error\r\n', 'upstream connect error'],
    ['nothing', '', null],
    ['no object', '7', null],
    ['words that are none', '{"error":{"message":{"a":1}},"message":[]}', null],
    ['control characters', '{"error":"a\\u001b[31m\\nb"}', 'a [31m b'],
  ])('readRefusal reads the words of %s', (_, body, message) => {
    expect(refuse(body).message).toBe(message)
  })

  it.each(['gzip', ['br']])('readRefusal names the coding %s instead of its bytes', (coding) => {
    const { message, code } = refuse('{"error":{"message":"m","code":"c"}}', {
      'content-encoding': coding,
    })
    expect(message).toBe(`its answer is compressed (${String(coding)})`)
    expect(code).toBeNull()
    expect(refuse('"m"', { 'content-encoding': 'identity' }).message).toBe('m')
  })

  it('readRefusal never shows the secret that a service repeats', () => {
    const body = Buffer.from('{"error":"no such key: sk-secret"}')
    expect(readRefusal({ headers: {}, body, secret: 'sk-secret' }).message).toBe(
      'no such key: [credential]',
    )
  })

  it('readRefusal takes whatever comes, and what it gives is bounded', () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string()), (body) => {
        const { message, code } = refuse(body)
        expect(message?.length ?? 0).toBeLessThanOrEqual(REFUSAL_MESSAGE_CHARACTERS_MAX)
        expect(message ?? '').not.toMatch(/\p{C}/u)
        expect(code?.length ?? 0).toBeLessThanOrEqual(REFUSAL_CODE_CHARACTERS_MAX)
      }),
    )
  })
})

describe('readReason', () => {
  const twoFaults = [
    { loc: ['body', 'n'], msg: 'too large' },
    { loc: ['body', 'top_p'], msg: 'too small' },
  ]
  const ofUpstream = {
    message: 'Provider returned error',
    code: 429,
    metadata: { raw: '{"error":{"message":"slow down"}}' },
  }
  it.each<[string, Json, string, string | null]>([
    ['OpenAI’s', { error: { message: 'm', type: 't', code: null } }, 'm', 't'],
    ['Anthropic’s', { type: 'error', error: { type: 't', message: 'm' } }, 'm', 't'],
    ['Google’s', [{ error: { code: 400, message: 'm', status: 'INVALID' } }], 'm', 'INVALID'],
    ['Mistral’s', { object: 'error', message: 'm', type: 't', code: '3' }, 'm', '3'],
    ['xAI’s', { code: 'c', error: 'm' }, 'm', 'c'],
    ['FastAPI’s', { detail: twoFaults }, 'body.n: too large; body.top_p: too small', null],
    ['OpenRouter’s', { error: ofUpstream }, 'Provider returned error: slow down', '429'],
    ['NestJS’s', { statusCode: 400, error: 'Bad Request', message: 'm' }, 'Bad Request: m', null],
    ['OAuth’s', { error: 'e', error_description: 'm' }, 'e: m', null],
    ['AWS’s', { Message: 'm' }, 'm', null],
    ['MiniMax’s', { base_resp: { status_msg: 'm' } }, 'm', null],
  ])('readReason reads an error in %s form', (_, body, message, code) => {
    expect(readReason(body)).toMatchObject({ message, code })
  })

  it.each<[JsonObject, number | null]>([
    // https://github.com/BerriAI/litellm/issues/25492
    [{ message: 'm', type: 'BadRequestError', code: 400 }, 400],
    [{ message: 'm', type: 'invalid_request_error', code: 'context_length_exceeded' }, 400],
    [{ message: 'm', type: 'overloaded_error' }, 529],
    [{ message: 'm', type: 'rate_limit_error' }, 429],
    [{ message: 'm', code: 200 }, null],
    [{ message: 'm', code: 'constructor', type: 'toString' }, null],
  ])('readReason reads the status that the error %j states', (error, status) => {
    expect(readReason({ error }).status).toBe(status)
  })

  it('readReason reads the type and the param of an error', () => {
    const error = { message: 'm', type: 'invalid_request_error', param: 'input', code: null }
    expect(readReason({ error })).toMatchObject({ type: error.type, param: error.param })
  })

  it('readReason cuts a text that is too long, and no character in half', () => {
    const { message, code } = readReason({
      error: { message: `a${'😀'.repeat(2000)}`, code: 'c'.repeat(500) },
    })
    expect(message).toHaveLength(REFUSAL_MESSAGE_CHARACTERS_MAX)
    expect(message?.isWellFormed()).toBe(true)
    expect(code).toHaveLength(REFUSAL_CODE_CHARACTERS_MAX)
  })
})

describe('errorIn', () => {
  it.each<[Json, string]>([
    [[{ error: { message: 'm' } }], 'm'],
    [{ error: { message: 'm' }, choices: [] }, 'm'],
    [{ choices: [{ error: { message: 'm' }, finish_reason: 'error' }] }, 'm'],
    [{ choices: [{ error: {} }] }, 'no reason given'],
    [{ object: 'error', message: 'm', type: 'InternalServerError', code: 500 }, 'm'],
    [{ id: '1', choices: null, base_resp: { status_code: 1004, status_msg: 'm' } }, 'm'],
  ])('errorIn gives the words of %j', (data, words) => {
    expect(errorIn(data)?.message ?? 'no reason given').toBe(words)
  })

  it.each<[Json]>([
    [null],
    [[1]],
    [{}],
    [{ type: 'ping' }],
    [{ error: null, choices: [], message: 'm' }],
    [{ choices: [{ error: null }], base_resp: { status_msg: 'success' } }],
    [{ content: [], message: 'm' }],
    [{ object: 'chat.completion.chunk', title: 'm' }],
    [{ type: 'message_start', message: { id: '1', role: 'assistant', content: [] } }],
  ])('errorIn finds no error in %j', (data) => {
    expect(errorIn(data)).toBeNull()
  })
})

describe('refusalFault', () => {
  const headers = { 'retry-after': '20', 'x-should-retry': 'false' }
  const said = refuse('{"error":{"message":"slow down","code":"rate_limit"}}', headers)
  const more = { provider_code: 'rate_limit', retry_after_seconds: 20, should_retry: false }

  it('refusalFault gives the status and words of a 4xx', () => {
    expect(refusalFault(429, said).fault).toEqual({
      code: 'provider_refused',
      status: 429,
      message: 'The provider refused the request: slow down',
      provider_status: 429,
      ...more,
    })
    expect(refusalFault(400, refuse('')).fault).toEqual({
      code: 'provider_refused',
      status: 400,
      message: 'The provider refused the request: no reason given',
      provider_status: 400,
    })
  })

  // https://github.com/BerriAI/litellm/pull/16288
  it.each([503, 529])('refusalFault gives the words and the wait of a %d', (status) => {
    expect(refusalFault(status, said).fault).toEqual({
      code: 'provider_error',
      status: 502,
      message: `The provider answered with status ${status}: slow down`,
      provider_status: status,
      ...more,
    })
  })
})

describe('words within an answer that has begun', () => {
  it.each<JsonObject>([
    { message: 'queued', status: 'waiting' },
    { title: 'A chat about the weather' },
    { id: 'x', usage: {}, choices: null, base_resp: { status_code: 0, status_msg: 'success' } },
  ])('words are no error unless the object says so: %j', (data) => {
    expect(errorIn(data, true)).toBeNull()
    expect(errorIn({ ...data, object: 'error', usage: null }, true)).not.toBeNull()
    expect(errorIn({ ...data, error: { message: 'w' } }, true)).not.toBeNull()
  })
})
