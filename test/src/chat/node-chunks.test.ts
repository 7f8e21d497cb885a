import { expect, it } from 'vitest'
import { CARRIED_MEMBERS_MAX, INDEX_MAX } from '#attestation/dialects/chat/chunk-forms.ts'
import { FormatError } from '#attestation/errors.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { createNodeChunks } from '#src/chat/node-chunks.ts'
import { HELLO, nodeChunk, nodeUsage } from '../../support/scripted-dispatcher.ts'

const IDENTITY = { id: 'chatcmpl-ours', created: 1_700_000_000, model: 'asked/for' }

function open(choicesAsked = 1) {
  return createNodeChunks({ identity: IDENTITY, choicesAsked })
}

function readAll(chunks: readonly JsonObject[], choicesAsked = 1): readonly JsonObject[] {
  const reader = open(choicesAsked)
  const read = chunks.flatMap((chunk) => reader.push(chunk))
  reader.finish()
  return read
}

const choiceOf = (chunk: JsonObject | undefined): JsonObject =>
  ((chunk?.choices ?? []) as readonly JsonObject[])[0] ?? {}
const deltasOf = (chunks: readonly JsonObject[]) => chunks.map((chunk) => choiceOf(chunk).delta)
const withChoice = (members: JsonObject): JsonObject => ({
  ...nodeChunk({}),
  choices: [{ index: 0, delta: {}, ...members }],
})
const OPENING = { role: 'assistant', content: '' }
const END = { content: '' }

it("a caller's chunks begin with the role, end with the reason, and are of one identity", () => {
  const chunks = readAll(HELLO)
  expect(deltasOf(chunks)).toEqual([OPENING, { content: 'hel' }, { content: 'lo' }, END])
  expect(chunks.map((chunk) => choiceOf(chunk).finish_reason)).toEqual([null, null, null, 'stop'])
  for (const chunk of chunks)
    expect(chunk).toMatchObject({ ...IDENTITY, object: 'chat.completion.chunk', usage: null })
})

it.each([
  ['all in one chunk', [nodeChunk({ role: 'assistant', content: 'hello' }, 'stop')]],
  ['without a role', [nodeChunk({ content: 'hello' }), nodeChunk({}, 'stop')]],
  [
    'with the reason on the last text',
    [nodeChunk({ role: 'assistant' }), nodeChunk({ content: 'hello' }, 'stop')],
  ],
  [
    'with a role, nulls and empty texts in each',
    [
      nodeChunk({ role: 'tool', content: 'hello', refusal: null, x: '' }),
      nodeChunk({ role: 'assistant', content: '' }, 'stop'),
    ],
  ],
])("a caller's chunks are the same when the node sends them %s", (_, chunks) => {
  expect(deltasOf(readAll(chunks))).toEqual([OPENING, { content: 'hello' }, END])
})

it("a caller's chunks keep unknown members where they stood, and never those of a proof", () => {
  const given: JsonObject = {
    ...nodeChunk({ content: 'a', reasoning_content: 'b' }),
    timings: { ms: 1 },
    hash: '00',
    receipt: {},
  }
  const [first, chunk] = readAll([given, withChoice({ stop_reason: 42, finish_reason: 'stop' })])
  expect(first).toMatchObject({ timings: { ms: 1 } })
  expect(choiceOf(chunk).delta).toEqual({ content: 'a', reasoning_content: 'b' })
  for (const name of ['hash', 'receipt']) {
    expect(first).not.toHaveProperty(name)
    expect(chunk).not.toHaveProperty(name)
  }
  expect(
    choiceOf(readAll([given, withChoice({ stop_reason: 42, finish_reason: 'stop' })]).at(-1)),
  ).toMatchObject({
    stop_reason: 42,
  })
})

it("a caller's chunks carry members of chunks without choices, in the end with the usage", () => {
  const reader = open()
  reader.push({ choices: [], prompt_filter_results: [1] })
  expect(reader.push(nodeChunk({}, 'stop'))[0]).toMatchObject({ prompt_filter_results: [1] })
  reader.push({ ...nodeUsage(1, 2), timings: { ms: 3 } })
  const usage = reader.usage() ?? {}
  expect(usage).toMatchObject({ total_tokens: 3 })
  expect(reader.usageChunk(usage)).toEqual({
    ...IDENTITY,
    object: 'chat.completion.chunk',
    choices: [],
    usage,
    timings: { ms: 3 },
  })
})

it("a caller's chunks have several choices, each with its own beginning and end", () => {
  const both = (delta: JsonObject, reason: Json = null): JsonObject => ({
    choices: [0, 1].map((index) => ({ index, delta, finish_reason: reason })),
  })
  const chunks = readAll([both({ content: 'a' }), both({}, 'length')], 2)
  expect(
    chunks.map((chunk) => (chunk.choices as readonly JsonObject[]).map(({ index }) => index)),
  ).toEqual([
    [0, 1],
    [0, 1],
    [0, 1],
  ])
})

it.each([
  ['stop', 'stop'],
  ['tool_calls', 'tool_calls'],
  ['content_filter', 'content_filter'],
  ['function_call', 'function_call'],
  ['eos_token', 'stop'],
  ['end_turn', 'stop'],
  ['max_tokens', 'length'],
])("a caller's chunks give the reason %s as %s", (given, reported) => {
  expect(choiceOf(readAll([nodeChunk({ content: 'a' }, given)]).at(-1)).finish_reason).toBe(
    reported,
  )
})

it("a caller's chunks have whole log probabilities", () => {
  const given = {
    content: [{ token: 'a', logprob: -0.5, id: 7, top_logprobs: [{ token: 'a', logprob: -0.5 }] }],
  }
  const [, chunk] = readAll([
    withChoice({ delta: { content: 'a' }, logprobs: given, finish_reason: 'stop' }),
  ])
  const entry = { token: 'a', logprob: -0.5, bytes: null }
  expect(choiceOf(chunk).logprobs).toEqual({
    content: [{ ...entry, id: 7, top_logprobs: [entry] }],
    refusal: null,
  })
})

it("a caller's chunks count the text, that of tool calls included", () => {
  const reader = open()
  for (const chunk of HELLO) reader.push(chunk)
  expect(reader.textLength()).toBe(5)
})

const call = (members: JsonObject): JsonObject => nodeChunk({ tool_calls: [members] })
const callsOf = (...chunks: readonly JsonObject[]) =>
  deltasOf(readAll([...chunks, nodeChunk({}, 'tool_calls')]))
    .flatMap((delta) => (delta as JsonObject).tool_calls ?? [])
    .map((item) => item as JsonObject)
const begun = (index: number, id: string, name = 'f', text = '') => ({
  index,
  id,
  type: 'function',
  function: { name, arguments: text },
})

it('tool calls begin with id, type and name, and go on with arguments alone', () => {
  const calls = callsOf(
    call({ index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: '' } }),
    call({ index: 0, id: null, type: 'function', function: { name: null, arguments: '{"x"' } }),
    call({ index: 0, id: 'a', function: { name: 'f', arguments: ':1}' } }),
  )
  expect(calls).toEqual([
    begun(0, 'a'),
    { index: 0, function: { arguments: '{"x"' } },
    { index: 0, function: { arguments: ':1}' } },
  ])
})

it.each([
  ['from 1', [1, 2]],
  ['with gaps', [7, 4_000_000_000]],
  ['all 0', [0, 0]],
  ['not at all', [null, null]],
])(
  'tool calls are numbered from 0 without gaps when the node numbers them %s',
  (_, [first, second]) => {
    const calls = callsOf(
      call({ index: first ?? null, id: 'a', function: { name: 'f' } }),
      call({ index: second ?? null, id: 'b', function: { name: 'f' } }),
      call({ index: second ?? null, function: { arguments: '{}' } }),
    )
    expect(calls).toEqual([
      begun(0, 'a'),
      begun(1, 'b'),
      { index: 1, function: { arguments: '{}' } },
    ])
  },
)

it('tool calls get an id when the node gives none', () => {
  expect(callsOf(call({ index: 0, function: { name: 'f', arguments: '{}' } }))).toEqual([
    begun(0, 'call_chatcmplours_0_0', 'f', '{}'),
  ])
})

it.each<[string, Json]>([
  ['that are no list', {}],
  ['that are no objects', ['f']],
  ['without a name', [{ index: 0, id: 'a', function: { arguments: '{}' } }]],
  ['whose arguments are no text', [{ index: 0, id: 'a', function: { name: 'f', arguments: {} } }]],
  ['with an index below 0', [{ index: -1, id: 'a', function: { name: 'f' } }]],
  [
    'without end',
    Array.from({ length: INDEX_MAX + 2 }, (_, index) => ({
      index,
      id: `${index}`,
      function: { name: 'f' },
    })),
  ],
])('tool calls are refused %s', (_, calls) => {
  expect(() => readAll([nodeChunk({ tool_calls: calls }, 'tool_calls')])).toThrow(FormatError)
})

it.each<[string, readonly JsonObject[]]>([
  ['that is done without a choice', []],
  ['that is done before its choice is', [nodeChunk({ content: 'a' })]],
  [
    'that gives a choice nobody asked for',
    [{ choices: [{ index: 1, delta: {}, finish_reason: 'stop' }] }],
  ],
  ['that goes on after the end', [...HELLO, nodeChunk({ content: 'more' })]],
  ['that ends in two ways', [...HELLO, nodeChunk({}, 'length')]],
  ['that says that it broke off', [nodeChunk({ content: 'a' }, 'abort')]],
  ['whose reason is no text', [withChoice({ finish_reason: 7 })]],
  ['whose content is no text', [nodeChunk({ content: { a: 1 } }, 'stop')]],
  ['whose refusal is no text', [nodeChunk({ refusal: { a: 1 } }, 'stop')]],
  ['whose delta is no object', [withChoice({ delta: 'a', finish_reason: 'stop' })]],
  ['whose choice is no object', [{ choices: ['a'] }]],
  ['whose function_call has no name', [nodeChunk({ function_call: { arguments: '' } }, 'stop')]],
  [
    'whose function_call has odd arguments',
    [nodeChunk({ function_call: { name: 'f', arguments: 1 } }, 'stop')],
  ],
  ['whose chunk is an error', [{ error: { message: 'out of memory' } }, ...HELLO]],
  [
    'that sends ever more members without a choice',
    Array.from({ length: CARRIED_MEMBERS_MAX + 1 }, (_, number) => ({
      choices: [],
      [`m${number}`]: 1,
    })),
  ],
])('a node is refused %s', (_, chunks) => {
  expect(() => readAll(chunks)).toThrow(FormatError)
})

it.each<[string, readonly JsonObject[]]>([
  ['that says nothing', [nodeChunk({}), nodeChunk({ role: 'assistant', content: '' })]],
  // https://github.com/sgl-project/sglang/pull/8417
  ['that ends it once more', [nodeChunk({}, 'stop')]],
])('a node is not refused for a chunk after the end %s', (_, chunks) => {
  expect(deltasOf(readAll([...HELLO, ...chunks]))).toHaveLength(4)
})

// https://github.com/songquanpeng/one-api/issues/1037
it('a choice without an index is the first where one was asked for', () => {
  const without: JsonObject = { choices: [{ delta: { content: 'a' }, finish_reason: 'stop' }] }
  expect(deltasOf(readAll([without]))).toEqual([OPENING, { content: 'a' }, END])
})

it.each<[string, Json]>([
  ['no object', 'a'],
  ['no list', { content: 'a' }],
  ['without a token', { content: [{ logprob: 0 }] }],
  ['beyond numbers', { content: [{ token: 'a', logprob: '-inf' }] }],
])('log probabilities that are %s are null', (_, logprobs) => {
  const [, chunk] = readAll([
    withChoice({ delta: { content: 'a' }, logprobs, finish_reason: 'stop' }),
  ])
  expect(choiceOf(chunk)).toMatchObject({ delta: { content: 'a' }, logprobs: null })
})

it('members called __proto__ are left out at any depth, and nothing else is', () => {
  const text = JSON.stringify(
    withChoice({ delta: { content: 'a', x: [{ y: 1, z: 2 }] }, finish_reason: 'stop' }),
  )
  const forged: JsonObject = JSON.parse(
    text.replace('"content"', '"__proto__":{"a":1},"content"').replace('"z"', '"__proto__"'),
  )
  const [, reported] = readAll([forged])
  expect(JSON.stringify(reported)).not.toContain('__proto__')
  expect(choiceOf(reported).delta).toEqual({ content: 'a', x: [{ y: 1 }] })
})
