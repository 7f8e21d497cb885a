import { describe, expect, it } from 'vitest'
import { checkRequest } from '../../../enclave/encryption/check-request.ts'
import { ValidationError } from '../../../src/api/errors.ts'
import { validateBody } from '../../../src/api/validation.ts'
import { providersRequestWith } from '../../../src/chat/chat-request.ts'

/** What the gateway says of the same body in a call that is not encrypted. */
function gatewayFaults(body: Uint8Array): readonly object[] {
  try {
    validateBody(providersRequestWith({}), body)
    return []
  } catch (error) {
    if (error instanceof ValidationError) return error.detail
    throw error
  }
}

function enclaveFaults(body: Uint8Array): readonly object[] {
  const checked = checkRequest(body)
  return 'faults' in checked ? checked.faults : []
}

/** A generator of numbers below a bound, the same in every run. */
function makeDice(seed: number) {
  let state = seed
  return (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

const whole = {
  messages: [
    { role: 'system', content: 'Be brief.', name: null },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'Hi' },
        { type: 'image_url', image_url: { url: 'https://example.org', detail: 'low' } },
        { type: 'input_audio', input_audio: { data: 'AA==', format: 'wav' } },
        { type: 'file', file: { file_id: 'f', file_data: null, filename: 'name' } },
        { type: 'refusal', refusal: 'No' },
      ],
    },
    {
      role: 'assistant',
      content: null,
      refusal: null,
      function_call: { name: 'f', arguments: '{}' },
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
    },
    { role: 'tool', content: '1', tool_call_id: 'c' },
    { role: 'function', name: 'f', content: '1' },
  ],
  model: 'hostile',
  frequency_penalty: 1.5,
  logit_bias: { 50256: -100, other: 1 },
  logprobs: true,
  top_logprobs: 3,
  max_tokens: 10,
  n: 1,
  presence_penalty: -2,
  response_format: {
    type: 'json_schema',
    json_schema: { name: 'shape', schema: { type: 'object' }, description: 'd', strict: true },
  },
  seed: 7,
  stop: ['a', 'b'],
  stream: true,
  stream_options: { include_usage: true },
  temperature: 0.7,
  top_p: 1,
  tools: [
    {
      type: 'function',
      function: { name: 'f', description: 'd', parameters: { type: 'object' }, strict: false },
    },
  ],
  tool_choice: { type: 'function', function: { name: 'f' } },
  user: 'me',
  unknown: { kept: [1] },
}

type Value = unknown
const ODD: readonly Value[] = [
  ...[null, true, false, '', 'x', 'auto', 'none', 'function', 'json_schema', 'text', 'tool'],
  ...[0, 1, -1, 2, 2.5, -3, 0.5, 20, 21, 128, 129, 1e300, -1e-7, 2 ** 53 - 2, 3.0],
  ...[[], {}, [1], ['a', 'b', 'c', 'd', 'e'], ['a', 1, 'b'], { length: 0 }, { type: 'function' }],
  ...['x'.repeat(512), 'x'.repeat(513), 'a b', 'user', 'file', 'image_url'],
  ...[{ type: 'json_schema' }, { type: 'json_schema', json_schema: { name: 'a b' } }],
  ...[{ include_usage: 1 }, { a: 'b' }, { ['n'.repeat(200)]: null }, new Array(60).fill(1)],
]

/** All places of a value, as the way there. */
function* placesOf(value: Value, path: readonly string[] = []): Generator<readonly string[]> {
  yield path
  if (typeof value === 'object' && value !== null)
    for (const [name, child] of Object.entries(value)) yield* placesOf(child, [...path, name])
}

/** A copy with another value at a place; undefined takes the member away. */
function changed(value: Value, path: readonly string[], to: Value): Value {
  const [step, ...rest] = path
  if (step === undefined) return to
  const copy: Record<string, Value> = structuredClone(value) as Record<string, Value>
  const child = changed(copy[step], rest, to)
  if (child !== undefined) copy[step] = child
  else if (Array.isArray(copy)) copy.splice(Number(step), 1)
  else delete copy[step]
  return copy
}

const bytesOf = (value: Value) => Buffer.from(JSON.stringify(value) ?? '')

describe('the bounds of an encrypted request', () => {
  it("the enclave's bounds equal the gateway's for each odd value at each place, fault by fault", () => {
    let refused = 0
    for (const path of placesOf(whole))
      for (const odd of [...ODD, undefined]) {
        const body = bytesOf(changed(whole, path, odd))
        const expected = gatewayFaults(body)
        if (expected.length > 0) refused++
        expect(enclaveFaults(body), `${path.join('.')} ${JSON.stringify(odd)}`).toEqual(expected)
      }
    expect(refused).toBeGreaterThan(1_000)
  })

  it("the enclave's bounds equal the gateway's for several faults at once", () => {
    const dice = makeDice(14)
    for (let round = 0; round < 4_000; round++) {
      let request: Value = whole
      for (let count = dice(4); count >= 0; count--) {
        const places = [...placesOf(request)]
        const place = places[dice(places.length)] ?? []
        request = changed(request, place.length === 0 ? ['n'] : place, ODD[dice(ODD.length)])
        if (typeof request !== 'object' || request === null) request = whole
      }
      const body = bytesOf(request)
      expect(enclaveFaults(body), body.toString()).toEqual(gatewayFaults(body))
    }
  })

  it.each([
    '',
    '{',
    'null',
    '[]',
    '7',
    '{"model":"m","model":"m"}',
    '{"messages":[],"model":"m","seed":9007199254740993}',
    '{"messages":[],"model":"m","n":1e999}',
    `{"${'n'.repeat(300)}":"\\ud800"}`,
    '['.repeat(1_000),
    '{"__proto__":{"model":"m"},"messages":[{"role":"user","content":"x"}]}',
    '{"model":"m","messages":[{"role":"__proto__","content":"x"}]}',
  ])("the enclave's bounds equal the gateway's for the body %j", (text) => {
    const expected = gatewayFaults(Buffer.from(text))
    expect(expected).not.toEqual([])
    expect(enclaveFaults(Buffer.from(text))).toEqual(expected)
  })

  it('the enclave refuses a body that is not UTF-8 as the gateway does', () => {
    const body = Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])
    expect(enclaveFaults(body)).toEqual(gatewayFaults(body))
    expect(enclaveFaults(body)).toHaveLength(1)
  })

  it("the enclave's bounds report 50 of a million faults within seconds", () => {
    const body = Buffer.from(`{"model":"m","messages":[${'1,'.repeat(999_999)}1]}`)
    const begun = performance.now()
    expect(enclaveFaults(body)).toHaveLength(50)
    expect(performance.now() - begun).toBeLessThan(5_000)
  })
})
