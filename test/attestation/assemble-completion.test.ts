import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  addChunk,
  assembleCompletion,
  emptyAssembly,
  finishAssembly,
} from '../../attestation/assemble-completion.ts'
import { encodeUtf8 } from '../../attestation/bytes.ts'
import { FormatError } from '../../attestation/errors.ts'
import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import { parseStrictJson } from '../../attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '../../attestation/json/value.ts'

const head = { id: 'c1', object: 'chat.completion.chunk', created: 7, model: 'demo/a' }

/** Published for second implementers. The responses were made from the README's text by another program than ours. */
const vectors: {
  readonly assembled: readonly {
    readonly name: string
    readonly chunks: readonly JsonObject[]
    readonly response: JsonObject
  }[]
  readonly refused: readonly { readonly name: string; readonly chunks: readonly JsonObject[] }[]
} = JSON.parse(readFileSync(join(import.meta.dirname, '../vectors/streams/assembled.json'), 'utf8'))

describe('the published vectors', () => {
  it.each(vectors.assembled)('hold: $name', ({ chunks, response }) => {
    expect(canonicalizeJson(assembleCompletion(chunks))).toBe(canonicalizeJson(response))
  })

  it.each(vectors.refused)('are refused: $name', ({ chunks }) => {
    expect(() => assembleCompletion(chunks)).toThrow(expect.objectContaining({ code: 'invalid_chunk' }))
  })
})

describe('assembleCompletion', () => {
  it('makes of an ordinary stream the completion that the provider would have sent whole', () => {
    expect(
      assembleCompletion([
        {
          ...head,
          system_fingerprint: 'fp',
          usage: null,
          choices: [choice({ role: 'assistant', content: '' })],
        },
        { ...head, system_fingerprint: 'fp', usage: null, choices: [choice({ content: 'Hel' })] },
        { ...head, system_fingerprint: 'fp', usage: null, choices: [choice({ content: 'lo 😀' })] },
        { ...head, system_fingerprint: 'fp', usage: null, choices: [choice({}, 'stop')] },
        { ...head, system_fingerprint: 'fp', usage: { total_tokens: 3 }, choices: [] },
      ]),
    ).toEqual({
      id: 'c1',
      object: 'chat.completion',
      created: 7,
      model: 'demo/a',
      system_fingerprint: 'fp',
      usage: { total_tokens: 3 },
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'Hello 😀', refusal: null, audio: null },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
    })
  })

  it('is the same whether chunks are added at once or one by one, with a look at it in between', () => {
    const chunks = [
      chunk({ role: 'assistant', content: '' }),
      chunk({ content: 'a', extra: [1] }),
      chunk({ extra: [2] }, 'stop'),
    ]
    const assembly = emptyAssembly()
    const looks = chunks.map((next) => canonicalizeJson(finishAssembly(addChunk(assembly, next))))
    expect(looks).toEqual(
      chunks.map((_, index) => canonicalizeJson(assembleCompletion(chunks.slice(0, index + 1)))),
    )
  })

  it('gives a completion that later chunks do not change', () => {
    const assembly = addChunk(emptyAssembly(), chunk({ extra: [1], deep: { list: [1] } }))
    const early = finishAssembly(assembly)
    const before = JSON.stringify(early)
    addChunk(assembly, chunk({ extra: [2], deep: { list: [2] } }))
    expect(JSON.stringify(early)).toBe(before)
  })

  it('changes no chunk that it was given', () => {
    const chunks = [chunk({ tags: ['a'], tool_calls: [call(0, 'f', '{')] }), chunk({ tags: ['b'] })]
    const before = JSON.stringify(chunks)
    assembleCompletion(chunks)
    expect(JSON.stringify(chunks)).toBe(before)
  })

  it('does not depend on where the text is cut', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.array(fc.nat(40)), (text, cuts) => {
        const pieces = cutText(text, cuts).map((content) => chunk({ content }))
        const stream = [chunk({ role: 'assistant', content: '' }), ...pieces, chunk({}, 'stop')]
        expect(choicesOf(stream)).toEqual([finished({ content: text })])
      }),
    )
  })

  it('is a completion without choices when there were none', () => {
    expect(assembleCompletion([])).toEqual({ object: 'chat.completion', choices: [] })
    expect(
      assembleCompletion([
        { ...head, choices: [] },
        { ...head, choices: null },
      ]),
    ).toMatchObject({ choices: [] })
  })
})

describe('top-level members', () => {
  it('take id, created and model from the first chunk that has them', () => {
    const completion = assembleCompletion([
      { id: '', model: '', prompt_filter_results: [1], choices: [] },
      { id: 'a', model: null, choices: [] },
      { id: 'b', model: 'm', created: 1, choices: [] },
      { id: 'c', model: 'n', created: 2, choices: [] },
    ])
    expect(completion).toMatchObject({ id: 'a', model: 'm', created: 1, prompt_filter_results: [1] })
  })

  it('take the last value that is not null of any other', () => {
    const completion = assembleCompletion([
      { service_tier: 'a', usage: { total_tokens: 1 }, unknown: 1, choices: [] },
      { service_tier: 'b', usage: { total_tokens: 2 }, unknown: [2], choices: [] },
      { service_tier: null, usage: null, unknown: null, choices: [] },
    ])
    expect(completion).toMatchObject({ service_tier: 'b', usage: { total_tokens: 2 }, unknown: [2] })
  })

  it('leave out what was only ever null, and the proof members', () => {
    const proof = {
      hash: 'h',
      public_key: 'k',
      signature: 's',
      tx_hash: 't',
      attestation: 'a',
      receipt: {},
    }
    const completion = assembleCompletion([{ ...head, service_tier: null, choices: [], ...proof }])
    expect(Object.keys(completion).sort()).toEqual(['choices', 'created', 'id', 'model', 'object'])
  })
})

describe('choices', () => {
  it('are merged by index and sorted by it', () => {
    const stream = [
      { ...head, choices: [choice({ content: 'b1' }, null, 1), choice({ content: 'a1' }, null, 0)] },
      { ...head, choices: [choice({ content: 'b2' }, 'length', 1)] },
      { ...head, choices: [choice({ content: 'a2' }, 'stop', 0)] },
    ]
    expect(choicesOf(stream)).toEqual([
      finished({ content: 'a1a2' }),
      { ...finished({ content: 'b1b2' }), index: 1, finish_reason: 'length' },
    ])
  })

  it('without an index stand where they stand', () => {
    expect(
      choicesOf([{ ...head, choices: [{ delta: { content: 'a' } }, { delta: { content: 'b' } }] }]),
    ).toMatchObject([
      { index: 0, message: { content: 'a' } },
      { index: 1, message: { content: 'b' } },
    ])
  })

  it('that did not finish have finish_reason null', () => {
    expect(choicesOf([chunk({ content: 'cut of' })])).toEqual([
      { ...finished({ content: 'cut of' }), finish_reason: null },
    ])
  })

  it('keep the last value that is not null of unknown members', () => {
    const stream = [
      { ...head, choices: [{ ...choice({ content: 'a' }), stop_reason: 1, seen: true }] },
      { ...head, choices: [{ ...choice({}, 'stop'), stop_reason: 'x', seen: null }] },
    ]
    expect(choicesOf(stream)).toMatchObject([{ stop_reason: 'x', seen: true }])
  })

  it('are not replaced by a message that a chunk claims to have', () => {
    const stream = [
      chunk({ content: 'said' }),
      { ...head, choices: [{ index: 0, message: { content: 'claimed' } }] },
    ]
    expect(choicesOf(stream)).toMatchObject([{ message: { content: 'said' } }])
  })

  it('have the token logprobs of all chunks, one after the other', () => {
    const stream = [
      {
        ...head,
        choices: [{ ...choice({ content: 'a' }), logprobs: { content: [{ token: 'a' }], refusal: null } }],
      },
      { ...head, choices: [{ ...choice({}), logprobs: null }] },
      {
        ...head,
        choices: [{ ...choice({ content: 'b' }), logprobs: { content: [{ token: 'b' }], refusal: null } }],
      },
    ]
    expect(choicesOf(stream)).toMatchObject([
      { logprobs: { content: [{ token: 'a' }, { token: 'b' }], refusal: null } },
    ])
  })
})

describe('message content', () => {
  const cases: readonly [string, readonly JsonObject[], Json][] = [
    ['empty when nothing was said', [{ role: 'assistant', content: '' }], ''],
    ['empty when no delta had any', [{}], ''],
    ['null beside tool calls', [{ content: '' }, { tool_calls: [call(0, 'f', '{}')] }], null],
    [
      'null beside a function call',
      [{ content: null }, { function_call: { name: 'f', arguments: '{}' } }],
      null,
    ],
    ['null beside a refusal', [{ content: '' }, { refusal: 'no' }], null],
    ['empty beside an empty refusal', [{ content: '', refusal: '' }], ''],
    [
      'kept beside tool calls',
      [{ content: 'Let me see' }, { tool_calls: [call(0, 'f', '{}')] }],
      'Let me see',
    ],
    [
      'parts when parts were sent',
      [{ content: [{ type: 'thinking' }] }, { content: [{ type: 'text' }] }],
      [{ type: 'thinking' }, { type: 'text' }],
    ],
    [
      'parts when text follows parts',
      [
        { content: '' },
        { content: [{ type: 'thinking' }] },
        { content: 'He' },
        { content: '' },
        { content: 'llo' },
      ],
      [{ type: 'thinking' }, { type: 'text', text: 'Hello' }],
    ],
    [
      'parts when parts follow text',
      [{ content: 'He' }, { content: 'y' }, { content: [{ type: 'image' }] }],
      [{ type: 'text', text: 'Hey' }, { type: 'image' }],
    ],
  ]
  it.each(cases)('is %s', (_, deltas, content) => {
    expect(choicesOf(deltas.map((delta) => chunk(delta)))).toMatchObject([{ message: { content } }])
  })
})

describe('calls', () => {
  it('are merged by index, which they lose, with names whole and arguments appended', () => {
    const stream = [
      chunk({ role: 'assistant', content: null, tool_calls: [call(1, 'g', '', 'id-g')] }),
      chunk({ tool_calls: [call(0, 'f', '{"a"', 'id-f'), { index: 1, function: { arguments: '{"b":' } }] }),
      chunk({ tool_calls: [{ index: 0, id: '', type: null, function: { name: '', arguments: ':1}' } }] }),
      chunk({ tool_calls: [{ index: 1, function: { name: null, arguments: '2}' } }] }, 'tool_calls'),
    ]
    expect(choicesOf(stream)).toMatchObject([
      {
        message: {
          tool_calls: [
            { id: 'id-f', type: 'function', function: { name: 'f', arguments: '{"a":1}' } },
            { id: 'id-g', type: 'function', function: { name: 'g', arguments: '{"b":2}' } },
          ],
        },
        finish_reason: 'tool_calls',
      },
    ])
  })

  it('without an index begin with each new id', () => {
    const stream = [
      chunk({ tool_calls: [{ id: 'a', function: { name: 'f', arguments: '{' } }] }),
      chunk({ tool_calls: [{ function: { arguments: '}' } }] }),
      chunk({ tool_calls: [{ id: 'b', function: { name: 'f', arguments: '[]' } }] }),
      chunk({ tool_calls: [{ id: 'b', function: { arguments: ' ' } }] }),
    ]
    const calls = [
      { id: 'a', function: { name: 'f', arguments: '{}' } },
      { id: 'b', function: { name: 'f', arguments: '[] ' } },
    ]
    expect(choicesOf(stream)).toMatchObject([{ message: { tool_calls: calls } }])
  })

  it('of the older form have one name and all arguments', () => {
    const stream = [
      chunk({ function_call: { name: 'f', arguments: '' } }),
      chunk({ function_call: { arguments: '{"a"' } }),
      chunk({ function_call: { name: '', arguments: ':1}' } }, 'function_call'),
    ]
    expect(choicesOf(stream)).toMatchObject([
      {
        message: { content: null, function_call: { name: 'f', arguments: '{"a":1}' } },
        finish_reason: 'function_call',
      },
    ])
  })

  it('keep members unknown here', () => {
    const stream = [
      chunk({ tool_calls: [{ index: 0, extra_content: { google: { thought_signature: 'ab' } } }] }),
      chunk({ tool_calls: [{ index: 0, extra_content: { google: { thought_signature: 'cd' } } }] }),
    ]
    expect(choicesOf(stream)).toMatchObject([
      { message: { tool_calls: [{ extra_content: { google: { thought_signature: 'abcd' } } }] } },
    ])
  })
})

describe('unknown members of a delta', () => {
  it('are appended when strings or arrays, merged when objects, else the last one', () => {
    const stream = [
      chunk({ reasoning: 'Th', details: [1], audio: { data: 'aa', at: 1 }, score: 1, mixed: 'text' }),
      chunk({
        reasoning: null,
        details: null,
        audio: { data: 'bb', at: 2, more: { list: [1] } },
        score: null,
      }),
      chunk({
        reasoning: 'ink',
        details: [2, 3],
        audio: { more: { list: [2] } },
        score: 2,
        mixed: { now: 'object' },
      }),
    ]
    expect(choicesOf(stream)).toMatchObject([
      {
        message: {
          reasoning: 'Think',
          details: [1, 2, 3],
          audio: { data: 'aabb', at: 2, more: { list: [1, 2] } },
          score: 2,
          mixed: { now: 'object' },
        },
      },
    ])
  })

  it('may be called __proto__ at any level without touching a prototype', () => {
    const text =
      '{"__proto__":{"a":1},"choices":[{"index":0,"__proto__":{"b":1},"delta":{"__proto__":{"c":[1]},"x":{"__proto__":"d"}}}]}'
    const completion = assembleCompletion([parse(text), parse(text)])
    expect(JSON.parse(canonicalizeJson(completion))).toEqual(
      JSON.parse(
        '{"__proto__":{"a":1},"object":"chat.completion","choices":[{"index":0,"__proto__":{"b":1},"finish_reason":null,"logprobs":null,"message":{"__proto__":{"c":[1,1]},"x":{"__proto__":"dd"},"role":"assistant","content":"","refusal":null,"audio":null}}]}',
      ),
    )
    expect('a' in {} || 'b' in {} || 'c' in {}).toBe(false)
  })

  it('take time and memory in proportion to the stream', () => {
    const many = Array.from({ length: 20_000 }, () =>
      chunk({
        reasoning: 'word ',
        details: [1, 2, 3],
        tool_calls: [{ id: '', function: { arguments: 'x' } }],
      }),
    )
    const start = performance.now()
    const [only] = choicesOf(many) as readonly { message: { reasoning: string; details: readonly Json[] } }[]
    expect(only?.message.reasoning).toHaveLength(100_000)
    expect(only?.message.details).toHaveLength(60_000)
    expect(performance.now() - start).toBeLessThan(5000)
  })
})

describe('addChunk', () => {
  const malformed: readonly [string, JsonObject][] = [
    ['choices that are no array', { choices: {} }],
    ['a choice that is no object', { choices: [1] }],
    ['a choice that is null', { choices: [null] }],
    ['an index that is no number', { choices: [{ index: '0' }] }],
    ['a negative index', { choices: [{ index: -1 }] }],
    ['a fractional index', { choices: [{ index: 0.5 }] }],
    ['a delta that is no object', { choices: [{ delta: 'text' }] }],
    ['logprobs that are no object', { choices: [{ logprobs: [] }] }],
    ['tool calls that are no array', { choices: [{ delta: { tool_calls: {} } }] }],
    ['a tool call that is no object', { choices: [{ delta: { tool_calls: ['f'] } }] }],
    ['a tool call with an impossible index', { choices: [{ delta: { tool_calls: [{ index: 1e300 }] } }] }],
    ['a function that is no object', { choices: [{ delta: { tool_calls: [{ function: 'f' }] } }] }],
    ['a function call that is no object', { choices: [{ delta: { function_call: 'f' } }] }],
  ]
  it.each(malformed)('refuses %s', (_, given) => {
    expect(() => addChunk(emptyAssembly(), given)).toThrow(FormatError)
  })

  it('throws nothing but FormatError and makes nothing but JSON of any chunks', () => {
    const delta = fc.dictionary(
      fc.constantFrom('content', 'refusal', 'role', 'tool_calls', 'function_call', 'x'),
      fc.jsonValue({ maxDepth: 2 }),
    )
    const anyChoice = fc.record(
      {
        index: fc.option(fc.nat(3)),
        delta,
        logprobs: fc.jsonValue({ maxDepth: 2 }),
        finish_reason: fc.jsonValue({ maxDepth: 2 }),
      },
      { requiredKeys: [] },
    )
    const anyChunk = fc.oneof(
      fc.record({ id: fc.jsonValue({ maxDepth: 2 }), choices: fc.array(anyChoice) }),
      fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 2 })),
    )
    fc.assert(
      fc.property(fc.array(anyChunk, { maxLength: 6 }), (chunks) => {
        try {
          const completion = assembleCompletion(chunks as JsonObject[])
          expect(typeof canonicalizeJson(completion)).toBe('string')
        } catch (error) {
          expect(error).toBeInstanceOf(FormatError)
        }
      }),
      { numRuns: 500 },
    )
  })
})

function chunk(delta: JsonObject, finishReason: string | null = null): JsonObject {
  return { ...head, choices: [choice(delta, finishReason)] }
}

function choice(delta: JsonObject, finishReason: string | null = null, index = 0): JsonObject {
  return { index, delta, logprobs: null, finish_reason: finishReason }
}

function call(index: number, name: string, args: string, id = `id-${index}`): JsonObject {
  return { index, id, type: 'function', function: { name, arguments: args } }
}

function finished(message: JsonObject): JsonObject {
  return {
    index: 0,
    message: { role: 'assistant', refusal: null, audio: null, ...message },
    logprobs: null,
    finish_reason: 'stop',
  }
}

function choicesOf(chunks: readonly JsonObject[]): Json | undefined {
  return assembleCompletion(chunks).choices
}

function cutText(text: string, cuts: readonly number[]): readonly string[] {
  const places = [...new Set(cuts.filter((cut) => cut < text.length))].sort((left, right) => left - right)
  return [0, ...places].map((start, index) => text.slice(start, places[index] ?? text.length))
}

function parse(text: string): JsonObject {
  return parseStrictJson(encodeUtf8(text)) as JsonObject
}
