import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { hashCompletion } from '#attestation/record-hash.ts'
import { ECHOED_MEMBERS, echoRequest } from '#src/verified/records/record-text.ts'

const response = { id: 'c', object: 'chat.completion' }

/** What the enclave stores for a caller's request, and what that hashes to. */
function sealed(request: JsonObject) {
  const { canonicalRequest, requestHash } = hashCompletion({ request, response })
  return { canonicalRequest, requestHash }
}

it('echoRequest shows every member of the interface, null where it was not set', () => {
  const { canonicalRequest } = sealed({
    model: 'm',
    messages: [{ role: 'user', content: 'x' }],
    stop: null,
  })
  const echo = echoRequest(canonicalRequest)
  expect(Object.keys(echo)).toEqual([...ECHOED_MEMBERS])
  expect(echo).toMatchObject({ model: 'm', stop: null, max_tokens: null, tools: null })
  expect(echo.messages).toEqual([{ role: 'user', content: 'x', name: null, function_call: null }])
})

it('an echoed request hashes to the same value, whatever it is, through JSON text and back', () => {
  const member = fc.constantFrom(
    ...ECHOED_MEMBERS,
    'role',
    'content',
    'name',
    '__proto__',
    'other',
    '1',
    'é',
  )
  const object = fc.dictionary(member, fc.jsonValue())
  const request = fc
    .tuple(object, fc.array(fc.oneof(object, fc.jsonValue())))
    .map(([rest, messages]) => ({
      ...rest,
      messages,
    }))
  fc.assert(
    fc.property(request, (value) => {
      const { canonicalRequest, requestHash } = sealed(value as JsonObject)
      const echo = JSON.parse(JSON.stringify(echoRequest(canonicalRequest)))
      expect(hashCompletion({ request: echo, response }).requestHash).toBe(requestHash)
    }),
    { numRuns: 500 },
  )
})
