import { describe, expect, it } from 'vitest'
import { decodeCall, decodeHeadAttestationRequest, decodePull } from '#enclave/calls/decode-call.ts'
import { PULL_WAIT_MAX_MS } from '#enclave/protocol/enclave-api.ts'
import { proofOf } from '../support/encrypted-calls.ts'

const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
const call = { context: 'c', provider: 'openai', credential: 'sk-1', is_callers: true }
const invalidCall = expect.objectContaining({
  fault: expect.objectContaining({ status: 400, code: 'invalid_call' }),
})

describe('decodeCall', () => {
  it('decodeCall gives context, provider and credential', () => {
    expect(decodeCall(encode(call))).toEqual(call)
    expect(decodeCall(encode({ ...call, credential: null }))).toEqual({ ...call, credential: null })
    expect(decodeCall(encode({ ...call, context: 'é'.repeat(2048) })).context).toHaveLength(2048)
    const outliving = { ...call, outlives_gateway: true, tells_completion: true }
    expect(decodeCall(encode(outliving))).toEqual(outliving)
    const neither = { outlives_gateway: false, tells_completion: false }
    expect(decodeCall(encode({ ...call, ...neither }))).toEqual(call)
  })

  it("a credential is the operator's unless the gateway says that it is the caller's", () => {
    const { is_callers: _, ...ofOlderGateway } = call
    expect(decodeCall(encode(ofOlderGateway))).toEqual({ ...call, is_callers: false })
  })

  it.each<[string, string | undefined]>([
    ['no JSON', Buffer.from('{').toString('base64url')],
    ['no object', encode([])],
    ['a context over the limit', encode({ ...call, context: 'é'.repeat(2049) })],
    ['no credential', encode({ context: '', provider: 'a' })],
    ['an empty credential', encode({ ...call, credential: '' })],
    ['a line break in the credential', encode({ ...call, credential: 'a\r\nx-evil: 1' })],
    ['no word whose credential it is', encode({ ...call, is_callers: 'yes' })],
    ['no word whether it goes on', encode({ ...call, outlives_gateway: 1 })],
    ['a credential over the limit', encode({ ...call, credential: 'a'.repeat(4097) })],
  ])('decodeCall refuses a call with %s', (_, header) => {
    expect(() => decodeCall(header)).toThrow(invalidCall)
  })
})

describe('decodePull', () => {
  const pull = { from: 0, wait_ms: 10, max: 5, known_document: null }
  const decode = (value: unknown) => decodePull(Buffer.from(JSON.stringify(value)))

  it('decodePull gives the request, and cuts its wait to the longest allowed', () => {
    expect(decode(pull)).toEqual({ ...pull, proofs: [] })
    const proofs = [proofOf('0'), proofOf('9007199254740991')]
    expect(decode({ ...pull, wait_ms: 1e9, known_document: 'ab', proofs })).toEqual({
      ...pull,
      wait_ms: PULL_WAIT_MAX_MS,
      known_document: 'ab',
      proofs,
    })
  })

  it.each([
    ['a negative index', { ...pull, from: -1 }],
    ['room for none', { ...pull, max: 0 }],
    ['a document that is no text', { ...pull, known_document: 1 }],
    ['proofs that are no list', { ...pull, proofs: { 0: proofOf('1') } }],
    ['a proof that is no object', { ...pull, proofs: [proofOf('1'), null] }],
    ['a proof of no index', { ...pull, proofs: [proofOf('0x1')] }],
    ['a proof without a transaction', { ...pull, proofs: [{ ...proofOf('1'), tx_hash: '0x"' }] }],
    ['a proof without a log', { ...pull, proofs: [{ ...proofOf('1'), log: { extra: 1 } }] }],
    ['no object', []],
  ])('decodePull refuses a pull with %s', (_, value) => {
    expect(() => decode(value)).toThrow(invalidCall)
  })
})

describe('decodeHeadAttestationRequest', () => {
  const hash = `0x${'b1'.repeat(32)}`
  const decode = (text: string) => decodeHeadAttestationRequest(Buffer.from(text))

  it('decodeHeadAttestationRequest gives the block hash', () => {
    expect(decode(JSON.stringify({ block_hash: hash }))).toEqual({ block_hash: hash })
  })

  it.each([
    ['nothing', ''],
    ['no object', '[]'],
    ['no block hash', '{}'],
    ['a hash of 31 bytes', JSON.stringify({ block_hash: hash.slice(0, -2) })],
    ['a hash of 33 bytes', JSON.stringify({ block_hash: `${hash}b1` })],
    ['a hash without prefix', JSON.stringify({ block_hash: hash.slice(2) })],
    ['a size of the gateway’s choosing', JSON.stringify({ block_hash: hash, size: 1 })],
    ['a member twice', `{"block_hash":"${hash}","block_hash":"${hash}"}`],
    ['more after it', `{"block_hash":"${hash}"}x`],
  ])('decodeHeadAttestationRequest refuses a request: %s', (_, text) => {
    expect(() => decode(text)).toThrow(invalidCall)
  })
})
