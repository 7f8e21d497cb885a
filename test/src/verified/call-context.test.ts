import { expect, it } from 'vitest'
import { encodeCallContext, parseCallContext } from '#src/verified/call-context.ts'

const context = { accountId: '6f1c8f0e-6f0b-4a55-9b0e-3f7a1f0f3a11', requestId: 'req_"é' }

it('a call context comes back as it was encoded', () => {
  expect(parseCallContext(encodeCallContext(context))).toEqual(context)
  const keyed = { ...context, callId: '0b8c3f6e-1111-4a55-9b0e-3f7a1f0f3a11' }
  expect(parseCallContext(encodeCallContext(keyed))).toEqual(keyed)
})

it.each([
  '',
  '{',
  'null',
  '7',
  '[]',
  '{}',
  '{"account_id":1,"request_id":"r"}',
  '{"account_id":"a"}',
])('a call context is null for a text that it did not write: %s', (text) =>
  expect(parseCallContext(text)).toBeNull(),
)

it('a call context refuses what the enclave would refuse', () => {
  expect(() => encodeCallContext({ ...context, requestId: 'x'.repeat(5000) })).toThrow(RangeError)
})
