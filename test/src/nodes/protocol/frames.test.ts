import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeNodeFrame, FAULT_MESSAGE_LENGTH_MAX } from '#src/nodes/protocol/frames.ts'

const decode = (value: unknown) => decodeNodeFrame(Buffer.from(JSON.stringify(value)))

it.each([
  [1, 'running'],
  [2, 'done'],
  [3, 'failed'],
  [null, 'none'],
])('a run frame with status %j is %s', (status, known) => {
  expect(decode({ request_id: 'r', error: null, chunk: null, status })).toEqual({
    kind: 'run',
    requestId: 'r',
    chunk: null,
    fault: null,
    status: known,
  })
})

it('a run frame of an old client has no status', () => {
  expect(decode({ request_id: 'r', chunk: { a: 1 } })).toMatchObject({
    kind: 'run',
    status: 'none',
    chunk: { a: 1 },
  })
})

it.each([
  ['a status that is none', { status: 4 }],
  ['a status in words', { status: 'done' }],
  ['a chunk that is no object', { chunk: [] }],
  ['an id that is too long', { request_id: 'x'.repeat(65) }],
])('a run frame with %s is stray', (_, members) => {
  expect(decode({ request_id: 'r', chunk: null, status: 1, ...members })).toEqual({
    kind: 'stray',
  })
})

it.each([
  [
    { status_code: 422, message: 'no' },
    { statusCode: 422, message: 'no' },
  ],
  [
    { status_code: 599, message: 'no' },
    { statusCode: 500, message: 'no' },
  ],
  [{ status_code: '400' }, { statusCode: 500, message: '' }],
  ['went wrong', { statusCode: 500, message: '' }],
  [
    { status_code: 400, message: 'a\u001b[31m\u202eb\ud800' },
    { statusCode: 400, message: 'a [31m b�' },
  ],
])('a run frame with the error %j has the fault %j', (error, fault) => {
  expect(decode({ request_id: 'r', error, status: 3 })).toMatchObject({ fault })
})

it('a run frame keeps a bounded part of an error’s message', () => {
  const frame = decode({
    request_id: 'r',
    error: { status_code: 500, message: 'x'.repeat(10_000) },
    status: 3,
  })
  expect(frame.kind === 'run' && frame.fault?.message.length).toBe(FAULT_MESSAGE_LENGTH_MAX)
})

it('decodeFrame gives a frame for any JSON, and never throws', () => {
  const member = fc.constantFrom(
    'request_id',
    'chunk',
    'error',
    'status',
    'protocol',
    'data',
    '__proto__',
    'x',
  )
  const frames = fc.oneof(fc.jsonValue(), fc.dictionary(member, fc.jsonValue()))
  fc.assert(
    fc.property(frames, (value) => {
      expect(['run', 'control', 'stray', 'malformed']).toContain(decode(value).kind)
    }),
  )
})
