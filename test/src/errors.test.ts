import { describe, expect, it } from 'vitest'
import {
  ApiError,
  asApiError,
  DatabaseAwayError,
  ERROR_RULES,
  type ErrorCode,
  errorReply,
  ValidationError,
} from '../../src/errors.ts'

describe('errorReply', () => {
  it('answers every code in the envelope with its status', () => {
    for (const [code, { status }] of Object.entries(ERROR_RULES)) {
      const reply = errorReply(new ApiError(code as ErrorCode, 'words'))
      expect(reply.status).toBe(status)
      expect(JSON.parse(reply.body)).toEqual({
        response: 'NOK',
        error: { status_code: status, code, message: 'words' },
      })
    }
  })

  it('answers a validation error with its detail alone', () => {
    const detail = [{ loc: ['body', 'n'], msg: 'm', type: 't' }]
    expect(errorReply(new ValidationError(detail))).toEqual({
      status: 422,
      headers: {},
      body: JSON.stringify({ detail }),
    })
  })

  it.each([new Error('the database password is hunter2'), 'hunter2', null, undefined])(
    'says nothing of what is not ours: %s',
    (error) => {
      const reply = errorReply(error)
      expect(reply.status).toBe(500)
      expect(reply.body).not.toContain('hunter2')
      expect(asApiError(error).code).toBe('internal_server_error')
    },
  )

  it('tells that the database is away, when to try again, and not where it is', () => {
    const error = new DatabaseAwayError('connect ECONNREFUSED 10.0.0.7:5432')
    const reply = errorReply(error)
    expect([reply.status, reply.headers]).toEqual([503, { 'retry-after': '1' }])
    expect(reply.body).not.toContain('10.0.0.7')
    expect(asApiError(error)).toMatchObject({ code: 'not_ready', cause: error })
  })

  it('tells clients when to try again, and when not to', () => {
    expect(errorReply(new ApiError('overloaded', 'm')).headers).toEqual({ 'retry-after': '1' })
    expect(errorReply(new ApiError('commit_delayed', 'm')).headers).toEqual({ 'x-should-retry': 'false' })
    expect(errorReply(new ApiError('invalid_credentials', 'm')).headers).toEqual({
      'www-authenticate': 'Bearer',
    })
    expect(errorReply(new ApiError('not_found', 'm')).headers).toEqual({})
  })
})
