import { describe, expect, it } from 'vitest'
import { decodeCall, decodePull } from '../../../enclave/calls/decode-call.ts'
import { PULL_WAIT_MAX_MS } from '../../../enclave/protocol/messages.ts'

const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
const call = { context: 'c', provider: 'openai', credential: 'sk-1' }
const invalidCall = expect.objectContaining({
  fault: expect.objectContaining({ status: 400, code: 'invalid_call' }),
})

describe('decodeCall', () => {
  it('gives context, provider and credential', () => {
    expect(decodeCall(encode(call))).toEqual(call)
    expect(decodeCall(encode({ ...call, credential: null }))).toEqual({ ...call, credential: null })
    expect(decodeCall(encode({ ...call, context: 'é'.repeat(2048) })).context).toHaveLength(2048)
  })

  it.each<[string, string | undefined]>([
    ['no header', undefined],
    ['another alphabet', `${encode(call)}+/=`],
    ['no JSON', Buffer.from('{').toString('base64url')],
    ['no object', encode([])],
    ['no context', encode({ provider: 'a', credential: null })],
    ['a context over the limit', encode({ ...call, context: 'é'.repeat(2049) })],
    ['no provider', encode({ context: '', credential: null })],
    ['no credential', encode({ context: '', provider: 'a' })],
    ['an empty credential', encode({ ...call, credential: '' })],
    ['a line break in the credential', encode({ ...call, credential: 'a\r\nx-evil: 1' })],
    ['a credential over the limit', encode({ ...call, credential: 'a'.repeat(4097) })],
  ])('refuses %s', (_, header) => {
    expect(() => decodeCall(header)).toThrow(invalidCall)
  })
})

describe('decodePull', () => {
  const pull = { from: 0, wait_ms: 10, max: 5, known_document: null }
  const decode = (value: unknown) => decodePull(Buffer.from(JSON.stringify(value)))

  it('gives the request, its wait cut to the longest there is', () => {
    expect(decode(pull)).toEqual(pull)
    expect(decode({ ...pull, wait_ms: 1e9, known_document: 'ab' })).toEqual({
      ...pull,
      wait_ms: PULL_WAIT_MAX_MS,
      known_document: 'ab',
    })
  })

  it.each([
    ['a negative index', { ...pull, from: -1 }],
    ['an index with a fraction', { ...pull, from: 0.5 }],
    ['text as an index', { ...pull, from: '0' }],
    ['no wait', { ...pull, wait_ms: undefined }],
    ['room for none', { ...pull, max: 0 }],
    ['a document that is no text', { ...pull, known_document: 1 }],
    ['no object', []],
  ])('refuses %s', (_, value) => {
    expect(() => decode(value)).toThrow(invalidCall)
  })
})
