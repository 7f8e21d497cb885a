import { describe, expect, it } from 'vitest'
import { PROOF_MEMBERS } from '#attestation/completion-hash.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { CALL_FORMS } from '#enclave/calls/call-forms.ts'

const fallback = { id: 'chatcmpl-fallback', created: 7, model: 'asked' }
const parse = (text: string) =>
  CALL_FORMS.chat.readAnswer(Buffer.from(text), { ...fallback, provider: 'acme' })
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
    ['no object', '[1]'],
    ['no choices', '{"id":"a"}'],
    ['choices that are none', '{"choices":[]}'],
    ['a choice without message', '{"choices":[{"text":"Hi"}]}'],
    ['nesting without end', `{"choices":${'['.repeat(500)}${']'.repeat(500)}}`],
  ])('parseAnswer refuses %s as no completion', (_, text) => {
    expect(() => parse(text)).toThrow(
      expect.objectContaining({
        fault: expect.objectContaining({ status: 502, code: 'provider_error' }),
      }),
    )
  })

  it('the fault of a refused answer says what was expected, and repeats a printable start', () => {
    const sent = `{"id":"a\u2028\u202e","choices":[],"x":"${'y'.repeat(300)}"}`
    const start = sent.replace(/[\u2028\u202e]/g, '?').slice(0, 200)
    expect(() => parse(sent)).toThrow(
      expect.objectContaining({
        fault: expect.objectContaining({
          message: `Readers would not understand the answer of acme (model asked) alike: expected choices. It sent: ${start}`,
          refused_reason: 'invalid_form',
        }),
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

  const messageOf = (message: object) =>
    parse(JSON.stringify({ choices: [{ message, finish_reason: 'tool_calls' }] }))

  // https://github.com/vercel/ai/issues/7834 has an answer with an empty id.
  it.each([
    ['without id and type', {}],
    ['with an empty id', { id: '', type: 'function' }],
    ['with nulls and an index', { id: null, type: null, index: 0 }],
  ])('parseAnswer gives tool calls %s the form that streams have', (_, given) => {
    const called = (name: string) => ({ ...given, function: { name, arguments: '{}' } })
    expect(messageOf({ tool_calls: [called('a'), called('b')] })).toMatchObject({
      choices: [
        {
          message: {
            tool_calls: ['a', 'b'].map((name, place) => ({
              id: `call_chatcmplfallback_0_${place}`,
              type: 'function',
              function: { name, arguments: '{}' },
            })),
          },
        },
      ],
    })
  })

  it('parseAnswer keeps the id and the further members of a tool call, without its index', () => {
    const call = { id: 'x', type: 'function', extra: { signature: 's', none: null } }
    const own = { name: 'a', arguments: '{"b":1}', strict: true }
    const given = [0, 1].map(() => ({ ...call, index: 0, function: own }))
    expect(messageOf({ tool_calls: given })).toMatchObject({
      choices: [{ message: { tool_calls: [0, 1].map(() => ({ ...call, function: own })) } }],
    })
    expect(JSON.stringify(messageOf({ tool_calls: given }).choices)).not.toContain('"index":1')
  })

  it('parseAnswer gives calls without arguments empty arguments', () => {
    const { choices: given } = messageOf({ tool_calls: [{ id: 'x', function: { name: 'a' } }] })
    expect(given).toMatchObject([{ message: { tool_calls: [{ function: { arguments: '' } }] } }])
    expect(messageOf({ function_call: { name: 'a' } }).choices).toMatchObject([
      { message: { function_call: { name: 'a', arguments: '' } } },
    ])
  })

  // llama-cpp-python writes both forms of a call that the request names.
  it('parseAnswer keeps a call in both forms, and leaves out an empty one', () => {
    const own = { name: 'a', arguments: '{}' }
    expect(
      messageOf({ tool_calls: [{ function: own }], function_call: own }).choices,
    ).toMatchObject([{ message: { tool_calls: [{ function: own }], function_call: own } }])
    for (const empty of [{}, { name: '', arguments: '' }])
      expect(messageOf({ content: 'Hi', function_call: empty }).choices).toMatchObject([
        { message: { content: 'Hi', function_call: null } },
      ])
  })

  it.each([
    ['arguments that are an object', { tool_calls: [{ function: { name: 'a', arguments: {} } }] }],
    ['another type', { tool_calls: [{ type: 'custom', custom: { name: 'a', input: '' } }] }],
    ['no name', { tool_calls: [{ id: 'x', function: { arguments: '{}' } }] }],
    ['no list of calls', { tool_calls: {} }],
  ])('parseAnswer refuses calls with %s, as streams do', (_, message) => {
    expect(() => messageOf(message)).toThrow('of acme (model asked)')
  })

  it("parseAnswer keeps the provider's word beside a stop_reason of null", () => {
    const choice = (stated: unknown) =>
      parse(
        JSON.stringify({
          choices: [{ message: { content: 'Hi' }, finish_reason: 'eos', stop_reason: stated }],
        }),
      ).choices
    expect(choice(null)).toMatchObject([{ finish_reason: 'stop', stop_reason: 'eos' }])
    expect(choice(151_645)).toMatchObject([{ finish_reason: 'stop', stop_reason: 151_645 }])
  })

  it('parseAnswer gives log probabilities the form that streams have', () => {
    const logprobs = (stated: unknown) =>
      parse(
        JSON.stringify({
          system_fingerprint: 5,
          choices: [{ message: { content: 'Hi' }, finish_reason: 'stop', logprobs: stated }],
        }),
      )
    expect(logprobs({ content: [{ token: 'Hi', logprob: -1 }] })).toMatchObject({
      choices: [
        {
          logprobs: {
            content: [{ token: 'Hi', logprob: -1, bytes: null, top_logprobs: [] }],
            refusal: null,
          },
        },
      ],
    })
    const together = logprobs({ tokens: ['Hi'], token_logprobs: [-1] })
    expect(together).toMatchObject({ choices: [{ logprobs: null }] })
    expect(together).not.toHaveProperty('system_fingerprint')
  })
})
