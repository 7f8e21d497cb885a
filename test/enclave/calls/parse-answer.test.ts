import { describe, expect, it } from 'vitest'
import { PROOF_MEMBERS } from '../../../attestation/completion-hash.ts'
import { canonicalizeJson } from '../../../attestation/json/canonical.ts'
import { parseAnswer } from '../../../enclave/calls/parse-answer.ts'

const fallback = { id: 'chatcmpl-fallback', created: 7, model: 'asked' }
const parse = (text: string) => parseAnswer(Buffer.from(text), fallback)
const choices =
  '"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]'

describe('parseAnswer', () => {
  it('parseAnswer keeps a completion as the provider wrote it', () => {
    const text =
      '{"id":"a","object":"chat.completion","created":1,"model":"m","x":{"y":[]},"usage":null,"choices":[{"index":1,"message":{"role":"assistant","content":"Hi","refusal":null,"audio":null,"z":1},"logprobs":null,"finish_reason":"stop"}]}'
    expect(parse(text)).toEqual(JSON.parse(text))
  })

  it('parseAnswer fills in the members that every completion has', () => {
    expect(parse('{"choices":[{"message":{"tool_calls":[]}}]}')).toEqual({
      ...fallback,
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: null, refusal: null, audio: null, tool_calls: [] },
          logprobs: null,
          finish_reason: null,
        },
      ],
    })
  })

  it('parseAnswer removes every member that only the gateway may speak', () => {
    const forged = PROOF_MEMBERS.map((name) => `"${name}":"forged",`).join('')
    const answer = parse(`{${forged}${choices}}`)
    expect(PROOF_MEMBERS.filter((name) => name in answer)).toEqual([])
    expect(JSON.stringify(answer)).not.toContain('forged')
  })

  it('parseAnswer brings numbers, surrogates and bytes into a form that canonical JSON has', () => {
    const numbers = '"x":[1.0,1e-7,-0,1e999,9007199254740993]'
    const text = '"y":"\\ud83d|\\ud83d\\ude00|\\u0000"'
    expect(canonicalizeJson(parse(`{${numbers},${text},${choices}}`))).toContain(
      '"x":[1,1e-7,0,1.7976931348623157e+308,9007199254740992],"y":"\uFFFD|😀|\\u0000"',
    )
  })

  it('parseAnswer keeps a member called __proto__ as a member', () => {
    const answer = parse(`{"__proto__":{"polluted":true},${choices}}`)
    expect(Object.keys(answer)).toContain('__proto__')
    expect(Object.getPrototypeOf(answer)).toBe(Object.prototype)
  })

  it.each([
    ['no JSON', 'upstream down'],
    ['nothing', ''],
    ['no object', '[1]'],
    ['no choices', '{"id":"a"}'],
    ['choices that are none', '{"choices":[]}'],
    ['choices that are no array', '{"choices":{}}'],
    ['a choice without message', '{"choices":[{"text":"Hi"}]}'],
    ['nesting without end', `{"choices":${'['.repeat(500)}${']'.repeat(500)}}`],
  ])('parseAnswer refuses %s as no completion', (_, text) => {
    expect(() => parse(text)).toThrow(
      expect.objectContaining({
        fault: expect.objectContaining({ status: 502, code: 'provider_error' }),
      }),
    )
  })

  it('parseAnswer refuses an error that came with status 200, and repeats its message', () => {
    expect(() => parse(`{"error":{"message":"overloaded","code":529},${choices}}`)).toThrow(
      'overloaded',
    )
  })

  it('parseAnswer takes an error of null for no error at all', () => {
    expect(parse(`{"error":null,${choices}}`).error).toBe(null)
  })
})
