import { expect } from 'vitest'
import type { ApiReply } from '../../support/documented-api.ts'
import { missingFields, type ReplyFields } from './missing-fields.ts'

/** Expects an answer with status 200 and the fields. */
export function expectFields({ status, value }: ApiReply, wanted: ReplyFields): void {
  expect([status, missingFields(value, wanted)]).toEqual([200, []])
}

/** Expects an answer with the error envelope (interface, part 7) and nothing else. */
export function expectRefusal(
  reply: Pick<ApiReply, 'status' | 'value'>,
  status: number,
  code: string,
): void {
  expect(reply).toMatchObject({ status, value: envelopeOf(status, code) })
  expect(Object.keys(reply.value as object).toSorted()).toEqual(['error', 'response'])
}

/** The error envelope, with any message. */
export function envelopeOf(status: number, code: string) {
  const param = code === 'unsupported_model' ? 'model' : null
  const words = { message: expect.any(String), type: expect.any(String), param }
  const error = { status_code: status, code, ...words }
  return { response: 'NOK', error }
}

/** Expects a 422 with one fault, at `loc`. */
export function expectFault(
  { status, value }: ApiReply,
  loc: readonly unknown[],
  type: string,
): void {
  const error = { message: expect.any(String), code: 'validation_failed' }
  expect([status, value]).toMatchObject([
    422,
    { detail: [{ loc, type, msg: expect.any(String) }], error },
  ])
}
