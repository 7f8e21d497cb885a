import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { CallFault } from '#enclave/call-fault.ts'
import { CALL_FORMS } from '#enclave/calls/call-forms.ts'
import { parseRequest } from '#enclave/calls/parse-request.ts'

const parse = (text: string) => parseRequest(Buffer.from(text), { form: CALL_FORMS.chat })

function faultOf(body: string | Uint8Array) {
  try {
    parseRequest(Buffer.from(body), { form: CALL_FORMS.chat })
  } catch (error) {
    if (error instanceof CallFault) return error.fault
    throw error
  }
  return null
}

describe('parseRequest', () => {
  it('parseRequest forwards the very bytes of a call without stream', () => {
    const text =
      '{ "model":"m", "messages":[], "temperature": 1.0, "stream": false, "stream_options": null }'
    const parsed = parse(text)
    expect(Buffer.from(parsed.forwarded).toString()).toBe(text)
    expect(parsed.forwardedHash).toBe(createHash('sha256').update(text).digest('hex'))
    expect(parsed).toMatchObject({ model: 'm', isStream: false })
  })

  it('parseRequest asks for usage on a stream, and keeps the request as the caller wrote it', () => {
    const parsed = parse('{"model":"m","messages":[],"stream":true,"n":3}')
    expect(Buffer.from(parsed.forwarded).toString()).toBe(
      '{"model":"m","messages":[],"stream":true,"n":3,"stream_options":{"include_usage":true}}',
    )
    expect(parsed.forwardedHash).toBe(createHash('sha256').update(parsed.forwarded).digest('hex'))
    expect(parsed.body).toEqual({ model: 'm', messages: [], stream: true, n: 3 })
    expect(parsed.isStream).toBe(true)
  })

  it('parseRequest forwards the very bytes of a stream whose caller asked for usage himself', () => {
    const text =
      '{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage": true}}'
    const parsed = parse(text)
    expect(Buffer.from(parsed.forwarded).toString()).toBe(text)
  })

  it("parseRequest keeps the caller's nonce from the provider, and hashes it", () => {
    const nonce = 'ab'.repeat(16)
    const parsed = parse(
      `{"model":"m","affidavit":{"nonce":"${nonce}"},"messages":[], "stream":true}`,
    )
    expect(Buffer.from(parsed.forwarded).toString()).toBe(
      '{"model":"m","messages":[], "stream":true,"stream_options":{"include_usage":true}}',
    )
    expect(parsed.canonicalRequest).toContain(`"affidavit":{"nonce":"${nonce}"}`)
    const without = parse('{"model":"m","messages":[],"stream":true}')
    expect(parsed.requestDigest).not.toEqual(without.requestDigest)
    expect(parse('{"model":"m","affidavit":null,"messages":[]}').forwarded).toEqual(
      Buffer.from('{"model":"m","messages":[]}'),
    )
  })

  it.each([
    ['no object', '"ab"'],
    ['a credential without a nonce', '{"credential":"operator"}'],
    ['another word for a credential', `{"nonce":"${'ab'.repeat(16)}","credential":"caller"}`],
    ['half a digest', `{"nonce":"${'ab'.repeat(16)}","credential":{"sha256":"abcd"}}`],
    [
      'a digest and more',
      `{"nonce":"${'ab'.repeat(16)}","credential":{"sha256":"${'ab'.repeat(32)}","x":1}}`,
    ],
    ['with another member', `{"nonce":"${'ab'.repeat(16)}","x":1}`],
    ['a short nonce', `{"nonce":"${'ab'.repeat(15)}"}`],
    ['a long nonce', `{"nonce":"${'ab'.repeat(65)}"}`],
    ['upper case', `{"nonce":"${'AB'.repeat(16)}"}`],
  ])('parseRequest refuses an affidavit member that is %s', (_, affidavit) => {
    const fault = faultOf(`{"model":"m","messages":[],"affidavit":${affidavit}}`)
    expect(fault).toMatchObject({
      status: 422,
      code: 'invalid_request',
      loc: ['body', 'affidavit'],
    })
  })

  it('parseRequest refuses demands in a header beside demands in the body that have headers', () => {
    const affidavit = { headers: { 'anthropic-version': '2023-06-01' } }
    const body = Buffer.from(JSON.stringify({ model: 'm', messages: [], affidavit }))
    const header = Buffer.from(JSON.stringify({ provider_keys: ['ab'.repeat(32)] }))
    const headers = { 'affidavit-call': header.toString('base64url') }
    const parseWith = (given: Readonly<Record<string, string>>) =>
      parseRequest(body, { form: CALL_FORMS.messages, headers: given })
    expect(parseWith({}).headers).toEqual(affidavit.headers)
    expect(() => parseWith(headers)).toThrow('not in both')
  })

  it.each([
    ['no JSON', '{"model":', []],
    ['no model', '{"messages":[]}', ['model']],
    ['a model that is no string', '{"model":1,"messages":[]}', ['model']],
    ['no messages', '{"model":"m"}', ['messages']],
    [
      'a member twice',
      '{"model":"m","messages":[{"role":"user","role":"user"}]}',
      ['messages', 0, 'role'],
    ],
    ['an integer beyond 2^53', '{"model":"m","messages":[],"seed":9007199254740993}', ['seed']],
    ['half a surrogate pair', '{"model":"m","messages":["\\ud800"]}', ['messages', 0]],
  ])('parseRequest refuses %s and says where', (_, body, where) => {
    const fault = faultOf(body)
    expect(fault).toMatchObject({ status: 422, code: 'invalid_request' })
    expect(fault?.loc?.slice(0, 1 + where.length)).toEqual(['body', ...where])
  })
})
