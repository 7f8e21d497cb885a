import { expect, it } from 'vitest'
import { VERIFIED_DIALECTS } from '#src/verified/calls/verified-dialects.ts'

it('the response so far is found in a first event whose texts have separators of lines', () => {
  const responses = VERIFIED_DIALECTS.find(({ name }) => name === 'responses')
  const response = { id: 'r', instructions: 'one\u2028two\u2029three' }
  const data = JSON.stringify({ response, sequence_number: 0, type: 'response.created' })
  const soFar = responses?.soFar(`event: response.created\ndata: ${data}`, 3)
  expect(soFar).toEqual({ response, sequence: 3 })
})
