import { expect, it } from 'vitest'
import type { EnclaveFault, EnclaveFaultCode } from '#enclave/protocol/enclave-api.ts'
import { errorEnvelope } from '#enclave/protocol/error-envelope.ts'
import { type ApiError, errorReply, ValidationError } from '#src/api/errors.ts'
import {
  EnclaveError,
  faultErrorOf,
  isOperatorsTrouble,
  outageErrorOf,
} from '#src/enclaves/enclave-errors.ts'

const faultOf = (code: EnclaveFaultCode, more: Partial<EnclaveFault> = {}): EnclaveFault => ({
  status: 500,
  code,
  message: 'words of the enclave',
  ...more,
})

it.each([
  ['unsupported_model', 404, 'unsupported_model'],
  ['provider_error', 502, 'provider_error'],
  ['provider_unreachable', 502, 'provider_unreachable'],
  ['provider_timeout', 504, 'provider_timeout'],
  ['answer_too_large', 502, 'answer_too_large'],
  ['log_full', 503, 'log_full'],
  ['not_ready', 503, 'not_ready'],
  ['too_busy', 503, 'overloaded'],
  ['provider_mismatch', 503, 'not_ready'],
  ['invalid_call', 500, 'internal_server_error'],
  ['log_conflict', 500, 'internal_server_error'],
  ['internal_error', 500, 'internal_server_error'],
] as const)('faultErrorOf answers %s with %i %s', (code, status, reported) => {
  expect(faultErrorOf(faultOf(code), true)).toMatchObject({ status, code: reported })
})

it.each([
  [{ loc: ['body', 'seed'] }, ['body', 'seed']],
  [{ loc: ['seed'] }, ['body', 'seed']],
  [{}, ['body']],
])(
  'faultErrorOf answers a body that the enclave refuses as a validation error: %j',
  (more, loc) => {
    const error = faultErrorOf(faultOf('invalid_request', { status: 422, ...more }), false)
    expect(error).toBeInstanceOf(ValidationError)
    const { status, body } = errorReply(error)
    expect(status).toBe(422)
    expect(JSON.parse(body).detail).toEqual([
      { loc, msg: 'words of the enclave', type: 'value_error' },
    ])
  },
)

it("faultErrorOf relays a provider's own refusal with its status, words, code and patience", () => {
  const fault = faultOf('provider_refused', {
    status: 429,
    provider_code: 'quota',
    retry_after_seconds: 7,
  })
  const reply = errorReply(faultErrorOf(fault, true))
  expect(reply).toMatchObject({ status: 429, headers: { 'retry-after': '7' } })
  expect(JSON.parse(reply.body)).toEqual({
    response: 'NOK',
    error: {
      status_code: 429,
      code: 'provider_refused',
      message: 'words of the enclave',
      provider_code: 'quota',
      type: 'rate_limit_error',
      param: null,
    },
  })
})

it.each([401, 403])(
  "faultErrorOf hides a %i that the operator's credential caused, whose words may name the key",
  (status) => {
    const fault = faultOf('provider_refused', {
      status,
      message: 'Incorrect key sk-op…',
      provider_code: 'sk-op',
    })
    const error = faultErrorOf(fault, true)
    expect(error).toMatchObject({ status: 502, code: 'provider_credential_rejected' })
    expect(isOperatorsTrouble(error)).toBe(true)
    expect(errorEnvelope(error as ApiError)).not.toContain('sk-op')
  },
)

it.each([401, 403])(
  "faultErrorOf relays a %i that the caller's own credential caused",
  (status) => {
    const error = faultErrorOf(faultOf('provider_refused', { status }), false)
    expect(error).toMatchObject({ status, code: 'provider_refused' })
    expect(isOperatorsTrouble(error)).toBe(false)
    // It is not our challenge: an SDK must not take its gateway key for rejected.
    expect(errorReply(error).headers).not.toHaveProperty('www-authenticate')
  },
)

it.each([
  ['unavailable', 503, 'enclave_unavailable'],
  ['timeout', 504, 'enclave_timeout'],
  ['protocol', 500, 'internal_server_error'],
  ['reply_too_large', 500, 'internal_server_error'],
] as const)('outageErrorOf answers %s with %i %s', (code, status, reported) => {
  const error = outageErrorOf(new EnclaveError(code, 'for operators only'))
  expect(error).toMatchObject({ status, code: reported })
  expect(error.message).not.toContain('operators')
})

it('outageErrorOf tells the fault that the enclave gave instead of an answer', () => {
  const error = new EnclaveError('refused', 'x', faultOf('not_ready'))
  expect(outageErrorOf(error)).toMatchObject({ status: 503, code: 'not_ready' })
})
