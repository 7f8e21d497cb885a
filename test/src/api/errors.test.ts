import { expect, it } from 'vitest'
import { ERROR_TYPES } from '#enclave/protocol/error-envelope.ts'
import {
  ApiError,
  asApiError,
  ERROR_RULES,
  type ErrorCode,
  errorReply,
  ValidationError,
} from '#src/api/errors.ts'
import { DatabaseAwayError } from '#src/storage/errors.ts'

it('an error reply answers every code in the envelope with its status', () => {
  for (const [code, { status, ...rule }] of Object.entries(ERROR_RULES)) {
    const reply = errorReply(new ApiError(code as ErrorCode, 'words'))
    expect(reply.status).toBe(status)
    expect(JSON.parse(reply.body)).toEqual({
      response: 'NOK',
      error: {
        status_code: status,
        code,
        message: 'words',
        type: expect.any(String),
        param: 'param' in rule ? rule.param : null,
      },
    })
    expect(ERROR_TYPES).toContain(JSON.parse(reply.body).error.type)
  }
})

it('an error reply answers a validation error with its detail, and the first fault where OpenAI’s clients look', () => {
  const detail = [
    { loc: ['body', 'messages', 0, 'role'], msg: 'Field required', type: 'missing' },
    { loc: ['body', 'n'], msg: 'm', type: 't' },
  ]
  const { status, headers, body } = errorReply(new ValidationError(detail))
  expect([status, headers, JSON.parse(body)]).toEqual([
    422,
    {},
    {
      detail,
      error: {
        message: 'body.messages.0.role: Field required (and 1 more: see detail)',
        type: 'invalid_request_error',
        param: 'messages.0.role',
        code: 'validation_failed',
      },
    },
  ])
  const whole = errorReply(new ValidationError([{ loc: ['body'], msg: 'no JSON', type: 't' }]))
  expect(JSON.parse(whole.body).error).toMatchObject({ message: 'body: no JSON', param: null })
})

it.each([
  [7, '7', '7000'],
  [59, '59', '59000'],
  // The SDKs of versions 4 and 5 take a minute for none.
  [60, '59', '59000'],
  [86_400, '59', '59000'],
])(
  'an error reply tells a wait of %i s in both headers, and no longer one than SDKs honour',
  (wait, seconds, ms) => {
    const error = new ApiError('rate_limit_exceeded', 'm', { retryAfterSeconds: wait })
    expect(errorReply(error).headers).toEqual({ 'retry-after': seconds, 'retry-after-ms': ms })
  },
)

it.each([new Error('the database password is hunter2'), 'hunter2', null, undefined])(
  'an error reply says nothing about an error that is not ours: %s',
  (error) => {
    const reply = errorReply(error)
    expect(reply.status).toBe(500)
    expect(reply.body).not.toContain('hunter2')
    expect(asApiError(error).code).toBe('internal_server_error')
  },
)

it('an error reply tells that the database is away, when to try again, and not where it is', () => {
  const error = new DatabaseAwayError('connect ECONNREFUSED 10.0.0.7:5432')
  const reply = errorReply(error)
  expect([reply.status, reply.headers]).toEqual([
    503,
    { 'retry-after': '1', 'retry-after-ms': '1000' },
  ])
  expect(reply.body).not.toContain('10.0.0.7')
  expect(asApiError(error)).toMatchObject({ code: 'not_ready', cause: error })
})

it('an error reply tells clients when to try again, and when not to', () => {
  expect(errorReply(new ApiError('overloaded', 'm')).headers).toEqual({
    'retry-after': '1',
    'retry-after-ms': '1000',
  })
  expect(errorReply(new ApiError('commit_delayed', 'm')).headers).toEqual({
    'x-should-retry': 'false',
  })
  expect(errorReply(new ApiError('invalid_credentials', 'm')).headers).toEqual({
    'www-authenticate': 'Bearer',
  })
  expect(errorReply(new ApiError('not_found', 'm')).headers).toEqual({})
})
