import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import {
  addChunk,
  assembleCompletion,
  emptyAssembly,
  finishAssembly,
} from '#attestation/dialects/chat/assemble-completion.ts'
import { FormatError } from '#attestation/errors.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'

const head = { id: 'c1', object: 'chat.completion.chunk', created: 7, model: 'demo/a' }

/**
 * Published for second implementers. The responses were made from the text of formats.md by another
 * program than ours.
 */
const vectors: {
  readonly assembled: readonly {
    readonly name: string
    readonly chunks: readonly JsonObject[]
    readonly response: JsonObject
  }[]
  readonly refused: readonly {
    readonly name: string
    readonly code: string
    readonly chunks: readonly JsonObject[]
  }[]
} = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../../vectors/streams/assembled.json'), 'utf8'),
)

describe('the published vectors', () => {
  it.each(vectors.assembled)(
    'assembleCompletion gives the published response: $name',
    ({ chunks, response }) => {
      expect(canonicalizeJson(assembleCompletion(chunks))).toBe(canonicalizeJson(response))
    },
  )

  it.each(vectors.refused)(
    'assembleCompletion refuses the published chunks: $name ($code)',
    ({ chunks, code }) => {
      expect(() => assembleCompletion(chunks)).toThrow(
        expect.objectContaining({ name: 'FormatError', code }),
      )
    },
  )
})

describe('assembleCompletion', () => {
  it('an ordinary stream becomes the completion that the provider would have sent whole', () => {
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

  it('chunks added one by one, with looks in between, give the same completion as all at once', () => {
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

  it('a completion that was given out does not change with later chunks', () => {
    const assembly = addChunk(emptyAssembly(), chunk({ extra: [1], deep: { list: [1] } }))
    const early = finishAssembly(assembly)
    const before = JSON.stringify(early)
    addChunk(assembly, chunk({ extra: [2], deep: { list: [2] } }))
    expect(JSON.stringify(early)).toBe(before)
  })

  it('assembleCompletion changes no chunk that it was given', () => {
    const chunks = [chunk({ tags: ['a'], tool_calls: [call(0, 'f', '{')] }), chunk({ tags: ['b'] })]
    const before = JSON.stringify(chunks)
    assembleCompletion(chunks)
    expect(JSON.stringify(chunks)).toBe(before)
  })

  it('the completion does not depend on where the text was cut', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.array(fc.nat(40)), (text, cuts) => {
        const pieces = cutText(text, cuts).map((content) => chunk({ content }))
        const stream = [chunk({ role: 'assistant', content: '' }), ...pieces, chunk({}, 'stop')]
        expect(choicesOf(stream)).toEqual([finished({ content: text })])
      }),
    )
  })

  it('a stream without choices becomes a completion without choices', () => {
    expect(assembleCompletion([])).toEqual({ object: 'chat.completion', choices: [] })
    expect(assembleCompletion([{ ...head, choices: [] }])).toMatchObject({ choices: [] })
  })
})

describe('top-level members', () => {
  it('every other top-level member takes its last value that is not null', () => {
    const completion = assembleCompletion([
      { ...head, service_tier: 'a', usage: { total_tokens: 1 }, unknown: 1, choices: [] },
      { ...head, service_tier: 'b', usage: { total_tokens: 2 }, unknown: [2], choices: [] },
      { ...head, service_tier: null, usage: null, unknown: null, choices: [] },
    ])
    expect(completion).toMatchObject({
      service_tier: 'b',
      usage: { total_tokens: 2 },
      unknown: [2],
    })
  })

  it('a completion leaves out the proof members and top-level members that were only ever null', () => {
    const proof = {
      hash: 'h',
      public_key: 'k',
      signature: 's',
      tx_hash: 't',
      attestation: 'a',
      receipt: {},
      log: {},
    }
    const completion = assembleCompletion([{ ...head, service_tier: null, choices: [], ...proof }])
    expect(Object.keys(completion).sort()).toEqual(['choices', 'created', 'id', 'model', 'object'])
  })
})

describe('choices', () => {
  it('choices are merged by index and sorted by index', () => {
    const stream = [
      {
        ...head,
        choices: [choice({ content: 'b1' }, null, 1), choice({ content: 'a1' }, null, 0)],
      },
      { ...head, choices: [choice({ content: 'b2' }, 'length', 1)] },
      { ...head, choices: [choice({ content: 'a2' }, 'stop', 0)] },
    ]
    expect(choicesOf(stream)).toEqual([
      finished({ content: 'a1a2' }),
      { ...finished({ content: 'b1b2' }), index: 1, finish_reason: 'length' },
    ])
  })

  it('a choice that did not finish has finish_reason null', () => {
    expect(choicesOf([chunk({ content: 'cut of' })])).toEqual([
      { ...finished({ content: 'cut of' }), finish_reason: null },
    ])
  })

  it('an unknown member of a choice keeps its last value that is not null', () => {
    const stream = [
      { ...head, choices: [{ ...choice({ content: 'a' }), stop_reason: 1, seen: true }] },
      { ...head, choices: [{ ...choice({}, 'stop'), stop_reason: 'x', seen: null }] },
    ]
    expect(choicesOf(stream)).toMatchObject([{ stop_reason: 'x', seen: true }])
  })

  it('a choice has the token logprobs of all chunks, one after the other', () => {
    const stream = [
      {
        ...head,
        choices: [
          { ...choice({ content: 'a' }), logprobs: { content: [{ token: 'a' }], refusal: null } },
        ],
      },
      { ...head, choices: [{ ...choice({}), logprobs: null }] },
      {
        ...head,
        choices: [
          { ...choice({ content: 'b' }), logprobs: { content: [{ token: 'b' }], refusal: null } },
        ],
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
      'parts with empty text beside them',
      [{ content: '' }, { content: [{ type: 'thinking' }] }, { content: '' }],
      [{ type: 'thinking' }],
    ],
  ]
  it.each(cases)('the content of a message is %s', (_, deltas, content) => {
    expect(choicesOf(deltas.map((delta) => chunk(delta)))).toMatchObject([{ message: { content } }])
  })
})

describe('calls', () => {
  it('tool calls are merged by index and lose it, with names whole and arguments appended', () => {
    const stream = [
      chunk({ role: 'assistant', content: null, tool_calls: [call(1, 'g', '', 'id-g')] }),
      chunk({
        tool_calls: [call(0, 'f', '{"a"', 'id-f'), { index: 1, function: { arguments: '{"b":' } }],
      }),
      chunk({
        tool_calls: [{ index: 0, id: '', type: null, function: { name: '', arguments: ':1}' } }],
      }),
      chunk(
        { tool_calls: [{ index: 1, function: { name: null, arguments: '2}' } }] },
        'tool_calls',
      ),
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

  it('a call of the older form has one name and all arguments', () => {
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

  it('tool calls keep members that are unknown here', () => {
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
  it('unknown members of a delta are appended as text or array, merged as object, else replaced', () => {
    const stream = [
      chunk({ reasoning: 'Th', details: [1], audio: { data: 'aa', at: 1 }, score: 1 }),
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
      }),
    ]
    expect(choicesOf(stream)).toMatchObject([
      {
        message: {
          reasoning: 'Think',
          details: [1, 2, 3],
          audio: { data: 'aabb', at: 2, more: { list: [1, 2] } },
          score: 2,
        },
      },
    ])
  })

  it('a chunk with a member called __proto__ at any level is refused', () => {
    const text = (top: string, choice: string, delta: string) =>
      `{"id":"c","object":"chat.completion.chunk","created":7,"model":"m"${top},"choices":[{"index":0${choice},"delta":{"x":[1]${delta}}}]}`
    const member = ',"__proto__":{"content":"EVIL"}'
    expect(() => assembleCompletion([parse(text('', '', ''))])).not.toThrow()
    for (const places of [
      [member, '', ''],
      ['', member, ''],
      ['', '', member],
      ['', '', `,"y":[{"a":1${member}}]`],
    ]) {
      const [top = '', choice = '', delta = ''] = places
      expect(() => assembleCompletion([parse(text(top, choice, delta))])).toThrow(
        expect.objectContaining({ code: 'invalid_chunk' }),
      )
    }
    expect('content' in {}).toBe(false)
  })

  it('assembling takes time and memory in proportion to the stream', () => {
    const many = Array.from({ length: 20_000 }, () =>
      chunk({
        reasoning: 'word ',
        details: [1, 2, 3],
        tool_calls: [{ index: 0, id: '', function: { arguments: 'x' } }],
      }),
    )
    const start = performance.now()
    const [only] = choicesOf(many) as readonly {
      message: { reasoning: string; details: readonly Json[] }
    }[]
    expect(only?.message.reasoning).toHaveLength(100_000)
    expect(only?.message.details).toHaveLength(60_000)
    expect(performance.now() - start).toBeLessThan(5000)
  })
})

describe('addChunk', () => {
  it.each(vectors.refused)(
    'addChunk adds nothing of a chunk that it refuses: $name',
    ({ chunks }) => {
      const assembly = emptyAssembly()
      const accepted: JsonObject[] = []
      for (const next of chunks)
        try {
          addChunk(assembly, next)
          accepted.push(next)
        } catch (error) {
          expect(error).toBeInstanceOf(FormatError)
        }
      expect(accepted.length).toBeLessThan(chunks.length)
      expect(canonicalizeJson(finishAssembly(assembly))).toBe(
        canonicalizeJson(assembleCompletion(accepted)),
      )
    },
  )

  it('readers who append text or keep the first, last or joined name see what the completion says', () => {
    const pieces = fc.oneof(fc.constant(null), fc.constant(''), fc.string({ maxLength: 4 }))
    const delta = fc.record(
      {
        content: fc.oneof(
          pieces,
          fc.constant(false),
          fc.array(fc.constant({ type: 'text', text: 'p' })),
        ),
        refusal: pieces,
        tool_calls: fc.array(
          fc.record(
            {
              index: fc.nat(1),
              id: fc.constantFrom('', 'a', 'b'),
              function: fc.record(
                { name: fc.constantFrom('', 'f', 'g'), arguments: pieces },
                { requiredKeys: [] },
              ),
            },
            { requiredKeys: ['index'] },
          ),
          { maxLength: 2 },
        ),
      },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(fc.array(delta, { maxLength: 5 }), (deltas) => {
        const chunks = deltas.map((item) => chunk(item as JsonObject))
        let message: JsonObject
        try {
          ;[message] = (choicesOf(chunks) as readonly { message: JsonObject }[]).map(
            (one) => one.message,
          ) as [JsonObject]
        } catch {
          return
        }
        if (message === undefined) return
        const shown = readersOf(deltas as readonly ShownDelta[])
        if (typeof message.content === 'string') expect(shown.content).toBe(message.content)
        expect(shown.refusal).toBe(message.refusal ?? '')
        for (const [place, call] of (
          (message.tool_calls ?? []) as readonly ShownCall[]
        ).entries()) {
          const index = shown.indexes[place] ?? -1
          for (const names of [shown.first, shown.last, shown.appended])
            expect(names.get(index) ?? '').toBe(call.function?.name ?? '')
        }
      }),
      { numRuns: 3_000 },
    )
  })

  it('assembleCompletion throws only FormatError and gives only JSON for any chunks', () => {
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

type ShownCall = { readonly function?: { readonly name?: string; readonly arguments?: string } }
type ShownDelta = {
  readonly content?: string | null
  readonly refusal?: string | null
  readonly tool_calls?: readonly (ShownCall & { readonly index: number })[]
}

/**
 * What readers show who append text, and who keep the first, keep the last, or append the names of
 * calls.
 */
function readersOf(deltas: readonly ShownDelta[]) {
  const [first, last, appended] = [
    new Map<number, string>(),
    new Map<number, string>(),
    new Map<number, string>(),
  ]
  const indexes = new Set<number>()
  for (const { tool_calls: calls = [] } of deltas)
    for (const { index, function: own } of calls) {
      indexes.add(index)
      const name = own?.name || ''
      if (name === '') continue
      if (!first.has(index)) first.set(index, name)
      last.set(index, name)
      appended.set(index, (appended.get(index) ?? '') + name)
    }
  return {
    content: deltas.map(({ content }) => content ?? '').join(''),
    refusal: deltas.map(({ refusal }) => refusal ?? '').join(''),
    indexes: [...indexes].sort((left, right) => left - right),
    first,
    last,
    appended,
  }
}

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
  const places = [...new Set(cuts.filter((cut) => cut < text.length))].sort(
    (left, right) => left - right,
  )
  return [0, ...places].map((start, index) => text.slice(start, places[index] ?? text.length))
}

function parse(text: string): JsonObject {
  return parseStrictJson(encodeUtf8(text)) as JsonObject
}
