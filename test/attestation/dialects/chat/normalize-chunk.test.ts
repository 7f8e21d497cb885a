import fc from 'fast-check'
import { expect, it } from 'vitest'
import { PROOF_MEMBERS } from '#attestation/completion-hash.ts'
import {
  addChunk,
  assembleCompletion,
  emptyAssembly,
  finishAssembly,
} from '#attestation/dialects/chat/assemble-completion.ts'
import { CARRIED_MEMBERS_MAX, INDEX_MAX } from '#attestation/dialects/chat/chunk-forms.ts'
import {
  finishChunks,
  isFinished,
  NO_CHUNKS,
  normalizeChunk,
  type StreamTerms,
} from '#attestation/dialects/chat/normalize-chunk.ts'
import { FormatError } from '#attestation/errors.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { makeWellFormed } from '#attestation/json/parse-lenient.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'

const terms: StreamTerms = {
  usageAsked: false,
  choicesAsked: 1,
  fallback: { id: 'chatcmpl-fallback', created: 1_700_000_000, model: 'asked' },
}
const withUsage: StreamTerms = { ...terms, usageAsked: true }
const three: StreamTerms = { ...terms, choicesAsked: 3 }

/** Runs a whole stream: what the caller gets, and what the record adds. */
function run(chunks: readonly JsonObject[], on: StreamTerms = terms) {
  let state = NO_CHUNKS
  const given: JsonObject[] = []
  for (const chunk of chunks) {
    const step = normalizeChunk(on, state, chunk)
    state = step.state
    given.push(...step.chunks)
  }
  const { visible, hidden } = finishChunks(on, state)
  return { given: visible === null ? given : [...given, visible], hidden, state }
}

function chunk(
  delta: JsonObject | null,
  more: JsonObject = {},
  choice: JsonObject = {},
): JsonObject {
  const choices = delta === null ? [] : [{ index: 0, delta, ...choice }]
  return {
    id: 'chatcmpl-1',
    object: 'chat.completion.chunk',
    created: 5,
    model: 'made',
    choices,
    ...more,
  }
}

it('a first chunk is given for each choice, also when choices begin in one chunk', () => {
  const both: JsonObject = {
    ...chunk({}),
    choices: [
      { index: 1, delta: { content: 'b' } },
      { index: 0, delta: { role: 'assistant' } },
    ],
  }
  const { given } = run([both, chunk({ content: 'a' })], three)
  expect(
    given.map(({ choices }) =>
      (choices as readonly JsonObject[]).map(({ index, delta }) => [index, delta]),
    ),
  ).toEqual([
    [
      [1, { role: 'assistant', content: '' }],
      [0, { role: 'assistant', content: '' }],
    ],
    [[1, { content: 'b' }]],
    [[0, { content: 'a' }]],
  ])
})

it('the first chunk of a choice does not carry a finish_reason or logprobs', () => {
  const { given } = run([
    chunk({ content: '' }, {}, { finish_reason: 'stop', logprobs: { content: [] } }),
  ])
  expect(given.map(({ choices }) => choices)).toEqual([
    [
      {
        index: 0,
        delta: { role: 'assistant', content: '' },
        logprobs: null,
        finish_reason: null,
      },
    ],
    [{ index: 0, delta: { content: '' }, logprobs: null, finish_reason: 'stop' }],
  ])
})

it('every chunk has one id, created and model: the first that the provider stated', () => {
  const { given } = run([
    chunk({ content: 'a' }, { id: 'one', created: 1, model: 'm1' }),
    chunk({ content: 'b' }, { id: 'two', created: 2, model: 'm2' }),
  ])
  expect(
    new Set(given.map(({ id, created, model }) => JSON.stringify([id, created, model]))),
  ).toEqual(new Set(['["one",1,"m1"]']))
})

it('every chunk has the fallback identity when the provider at first states none', () => {
  const { given } = run([
    { choices: [{ delta: { content: 'a' } }] },
    chunk({ content: 'b' }, { id: 'late', created: 9, model: 'late' }),
  ])
  for (const item of given) expect(item).toMatchObject(terms.fallback)
})

it('every chunk takes the identity that a chunk without choices announced, unless it is empty', () => {
  const { given } = run([chunk(null, { id: '', model: '', created: 3 }), chunk({ content: 'a' })])
  expect(given[0]).toMatchObject({ id: 'chatcmpl-1', created: 3, model: 'made' })
})

it('every chunk has object, null usage, and null for a missing or empty finish_reason and logprobs', () => {
  const { given } = run([{ choices: [{ delta: { content: 'a' }, finish_reason: '' }] }])
  expect(given[1]).toEqual({
    ...terms.fallback,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta: { content: 'a' }, logprobs: null, finish_reason: null }],
    usage: null,
  })
})

it('every chunk keeps members unknown here, at the top, in the choice and in the delta', () => {
  const { given } = run([
    chunk(
      { content: 'a', audio: { id: 'x' } },
      { system_fingerprint: 'fp', x_extra: [1] },
      { stop_reason: 7 },
    ),
  ])
  expect(given[0]).toMatchObject({ system_fingerprint: 'fp', x_extra: [1] })
  expect(given[1]).toMatchObject({
    choices: [{ stop_reason: 7, delta: { content: 'a', audio: { id: 'x' } } }],
  })
})

it('no chunk has any of the members that only the gateway may speak', () => {
  const forged = Object.fromEntries(PROOF_MEMBERS.map((name) => [name, 'forged']))
  const { given } = run(
    [
      chunk(null, forged),
      chunk({ content: 'a' }, forged),
      chunk(null, { usage: { a: 1 }, ...forged }),
    ],
    withUsage,
  )
  expect(given).toHaveLength(3)
  expect(JSON.stringify(given)).not.toContain('forged')
})

it('chunks without choices never come first: their other members go with the next chunk', () => {
  const { given } = run([chunk(null, { prompt_filter_results: [1] }), chunk({ content: 'a' })])
  expect(given[0]).toMatchObject({
    prompt_filter_results: [1],
    choices: [{ delta: { role: 'assistant' } }],
  })
})

it('chunks without choices are not given to a caller who did not ask for usage', () => {
  const { given, hidden } = run([
    chunk({ content: 'a' }),
    chunk(null, { usage: { total_tokens: 3 } }),
  ])
  expect(given).toHaveLength(2)
  expect(hidden).toMatchObject({ choices: [], usage: { total_tokens: 3 } })
})

it('chunks without choices give usage last, once, to a caller who asked', () => {
  const { given, hidden } = run(
    [chunk({ content: 'a' }), chunk(null, { usage: { total_tokens: 3 } })],
    withUsage,
  )
  expect(hidden).toBe(null)
  expect(given.map(({ usage }) => usage)).toEqual([null, null, { total_tokens: 3 }])
  expect(given.at(-1)).toMatchObject({ id: 'chatcmpl-1', choices: [] })
})

it.each(
  Object.entries<readonly JsonObject[]>({
    'in the last chunk with a choice': [
      chunk({ content: 'a' }),
      chunk({}, { usage: { total_tokens: 3 } }, { finish_reason: 'stop' }),
    ],
    'in each chunk, growing': [
      chunk({ content: 'a' }, { usage: { total_tokens: 2 } }),
      chunk({}, { usage: { total_tokens: 3 } }, { finish_reason: 'stop' }),
    ],
    twice: [
      chunk({ content: 'a' }, { usage: { total_tokens: 3 } }),
      chunk(null, { usage: { total_tokens: 3 } }),
    ],
  }),
)('usage that the provider states %s becomes one last chunk', (_, chunks) => {
  const { given } = run(chunks, withUsage)
  expect(given.filter(({ usage }) => usage !== null)).toEqual([given.at(-1)])
  expect(given.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 3 } })
})

it('usage that was never stated gives no chunk', () => {
  expect(run([chunk({ content: 'a' })], withUsage).given).toHaveLength(2)
})

const done = (index: number): JsonObject => ({
  choices: [{ index, delta: {}, finish_reason: 'stop' }],
})

it('a stream without [DONE] is finished when all choices asked for have a finish_reason', () => {
  expect(isFinished(run([done(0)]).state)).toBe(true)
  expect(isFinished(run([done(0), done(1)], three).state)).toBe(true)
})

it('a stream is not finished without choices, with an open choice, or with a choice not begun', () => {
  expect(isFinished(NO_CHUNKS)).toBe(false)
  expect(isFinished(run([done(0), { choices: [{ index: 1, delta: {} }] }], three).state)).toBe(
    false,
  )
})

it('the opening chunk of Azure, which has no time, is not taken for the time of all', () => {
  const opening = { ...chunk(null), id: '', object: '', created: 0, model: '' }
  const { given } = run([opening, { ...chunk({ content: 'a' }), created: 1_700_000_001 }])
  expect(given.map(({ created }) => created)).toEqual([1_700_000_001, 1_700_000_001])
})

it.each([-0.01, [], 'x'])(
  'logprobs that are no object, as from Together, become null: %j',
  (logprobs) => {
    const { given } = run([chunk({ content: 'a' }, {}, { logprobs })])
    expect(given.at(-1)).toMatchObject({ choices: [{ delta: { content: 'a' }, logprobs: null }] })
  },
)

it('an error of null is left out of chunks, as some readers ask only whether it is there', () => {
  const { given } = run([chunk({ content: 'a' }, { error: null })])
  expect(given.some((one) => 'error' in one)).toBe(false)
})

it.each<[string, JsonObject]>([
  ['choices that are no array', { choices: {} }],
  ['a choice that is not an object', { choices: ['a'] }],
  ['a delta that is no object', { choices: [{ delta: 'a' }] }],
  ['a negative index', { choices: [{ index: -1, delta: {} }] }],
  ['an index with a fraction', { choices: [{ index: 0.5, delta: {} }] }],
  ['an index over the limit', { choices: [{ index: INDEX_MAX + 1, delta: {} }] }],
  [
    'more choices than the limit',
    { choices: Array.from({ length: INDEX_MAX + 2 }, () => ({ delta: {} })) },
  ],
  [
    'more members without choices than the limit',
    Object.fromEntries(
      Array.from({ length: CARRIED_MEMBERS_MAX + 1 }, (_, index) => [`x${index}`, 1]),
    ),
  ],
  ['a finish_reason that is no text', { choices: [{ delta: {}, finish_reason: 1 }] }],
])('chunks of the wrong form are refused: %s', (_, wrong) => {
  expect(() => run([wrong])).toThrow(
    expect.objectContaining({ name: 'FormatError', code: 'invalid_chunk' }),
  )
})

it('members without choices that add up to more than the limit are refused', () => {
  const chunks = Array.from({ length: CARRIED_MEMBERS_MAX + 1 }, (_, index) => ({
    [`x${index}`]: 1,
  }))
  expect(() => run(chunks)).toThrow('at most')
  expect(() => run(chunks.slice(1))).not.toThrow()
})

it('chunks of the wrong form throw nothing but FormatError, whatever JSON they are', () => {
  const object = fc.dictionary(
    fc.constantFrom('id', 'choices', 'usage', '__proto__', 'model'),
    fc.jsonValue(),
  )
  fc.assert(
    fc.property(fc.array(object, { maxLength: 4 }), (chunks) => {
      try {
        run(chunks as readonly JsonObject[])
      } catch (error) {
        expect(error).toBeInstanceOf(FormatError)
      }
    }),
  )
})

it('a stream makes its reader remember so many members, and no long names', () => {
  const delta = (count: number): JsonObject =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`m${at}`, { id: 'x' }]))
  expect(() => run([chunk(delta(128)), chunk(delta(128))])).not.toThrow()
  expect(() => run([chunk(delta(129))])).toThrow('expected at most 256 members')
  const nested = { ['n'.repeat(1_000)]: { ['m'.repeat(23)]: 1 } }
  expect(() => run([chunk(nested)])).not.toThrow()
  expect(() => run([chunk({ ['n'.repeat(1_000)]: { ['m'.repeat(24)]: 1 } })])).toThrow(
    'expected names of at most 1024 characters',
  )
})

it('a call makes its reader wait for its name through so many deltas, and so much text', () => {
  const wait = (at: number) => chunk({ tool_calls: [{ index: 0, function: { [`k${at}`]: 1 } }] })
  const deltas = Array.from({ length: 65 }, (_, at) => wait(at))
  expect(() => run(deltas.slice(0, 64))).not.toThrow()
  expect(() => run(deltas)).toThrow('expected the name of a call before its arguments')
  const long = { tool_calls: [{ index: 0, function: { arguments: 'x'.repeat(64 * 1024) } }] }
  expect(() => run([chunk(long)])).toThrow('expected the name of a call before its arguments')
})

const size = (value: unknown) => JSON.stringify(value).length

it('a chunk that becomes several has its members in the first of them', () => {
  const { given } = run([chunk({ content: 'a' }, { padding: 'p' }, { finish_reason: 'stop' })])
  expect(given.map(({ padding = null }) => padding)).toEqual(['p', null, null])
})

it('an id or a model that is long is not repeated with each chunk', () => {
  for (const name of ['id', 'model'] as const) {
    const { given } = run([chunk({ content: 'a' }, { [name]: 'x'.repeat(257) })])
    expect(given[0]?.[name]).toBe(terms.fallback[name])
    const controls = run([chunk({ content: 'a' }, { [name]: '\u0001'.repeat(9) })])
    expect(controls.given[0]?.[name]).toBe(terms.fallback[name])
    const long = 'x'.repeat(256)
    expect(run([chunk({ content: 'a' }, { [name]: long })]).given[0]?.[name]).toBe(long)
  }
})

it.each([
  ['many members', { pad: 'p'.repeat(200_000) }, { content: 'a' }],
  ['long names', { id: 'i'.repeat(200_000), model: 'm'.repeat(200_000) }, { content: 'a' }],
  [
    'a long member of a call',
    {},
    { tool_calls: [{ function: { name: 'f' }, x: 'x'.repeat(200_000) }] },
  ],
])('the output of a chunk with %s is not a multiple of the chunk', (_, members, delta) => {
  const first = chunk(delta, members, { finish_reason: 'stop' })
  const { given } = run([first, ...Array.from({ length: 100 }, () => chunk(null, { a: 1 }))])
  expect(size(given)).toBeLessThan(1.1 * size(first) + 10_000)
})

const name = fc.constantFrom(
  ...'content reasoning refusal audio id name type index x __proto__'.split(' '),
)
const value = fc.letrec((tie) => ({
  any: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom(null, '', 'a', '\ud83d', '\ude00', 0, 7, true),
    fc.array(tie('any'), { maxLength: 2 }),
    fc.dictionary(name, tie('any'), { maxKeys: 3 }),
  ),
})).any
const body = fc.dictionary(
  fc.constantFrom('name', 'arguments', 'x', 'id'),
  fc.oneof(fc.constantFrom('f', '{', ''), value),
  { maxKeys: 3 },
)
const call = fc.record(
  {
    index: fc.nat(2),
    id: fc.constantFrom('a', 'b', ''),
    type: fc.constant('function'),
    x: value,
    function: body,
  },
  { requiredKeys: [] },
)
const delta = fc.oneof(
  fc.dictionary(name, value, { maxKeys: 3 }),
  fc.record({ tool_calls: fc.array(call, { maxLength: 3 }) }),
  fc.record({ function_call: body }),
  fc.record({ content: fc.constantFrom('a', 'b', '') }),
)
const streamed = fc.record(
  {
    choices: fc.uniqueArray(
      fc.record(
        {
          index: fc.nat(1),
          delta,
          finish_reason: fc.constantFrom(null, null, null, 'stop', 'error'),
          logprobs: value,
          message: value,
        },
        { requiredKeys: ['delta'] },
      ),
      { maxLength: 2, selector: ({ index }) => index },
    ),
    type: fc.constantFrom('content.delta', 'x'),
    chunk: value,
    error: fc.constant(null),
    x: value,
  },
  { requiredKeys: ['choices'] },
)

it('whatever is given out of any stream passes checkChunk, opens each choice once, and hashes as its record', () => {
  let given = 0
  fc.assert(
    fc.property(fc.array(streamed, { minLength: 1, maxLength: 5 }), (chunks) => {
      const assembly = emptyAssembly()
      const kept: JsonObject[] = []
      let state = NO_CHUNKS
      for (const one of chunks as unknown as readonly JsonObject[]) {
        let step: ReturnType<typeof normalizeChunk>
        try {
          step = normalizeChunk(three, state, one)
        } catch (error) {
          expect(error).toBeInstanceOf(FormatError)
          break
        }
        state = step.state
        kept.push(...step.chunks.map((item) => makeWellFormed(item) as JsonObject))
      }
      for (const item of kept) addChunk(assembly, item)
      given += kept.length
      const opened = new Set<Json>()
      for (const { choices } of kept)
        for (const { index = null, delta } of choices as readonly JsonObject[]) {
          if (opened.has(index)) expect(delta).not.toHaveProperty('role')
          else expect(delta).toMatchObject({ role: 'assistant', content: '' })
          opened.add(index)
        }
      const response = assembleCompletion(JSON.parse(JSON.stringify(kept)))
      expect(canonicalizeJson(response)).toBe(canonicalizeJson(finishAssembly(assembly)))
    }),
    { numRuns: 1_500 },
  )
  expect(given).toBeGreaterThan(600)
})
