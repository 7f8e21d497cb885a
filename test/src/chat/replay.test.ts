import fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  addChunk,
  assembleCompletion,
  emptyAssembly,
  finishAssembly,
} from '#attestation/dialects/chat/assemble-completion.ts'
import { FormatError } from '#attestation/errors.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { replayChunks } from '#src/chat/replay.ts'

function replay(completion: JsonObject): JsonObject {
  const { chunks, usage } = replayChunks(completion)
  return assembleCompletion(usage === null ? chunks : [...chunks, usage])
}

const text = fc.string({ unit: 'grapheme', maxLength: 12 })
const logprob = fc.record({
  token: text,
  bytes: fc.constant(null),
  logprob: fc.double({ noNaN: true, noDefaultInfinity: true }),
})
const call = fc.record(
  {
    index: fc.integer({ min: 0, max: 2 }),
    id: text,
    type: fc.constant('function'),
    function: fc.record({ name: text, arguments: text }, { requiredKeys: [] }),
  },
  { requiredKeys: ['index', 'function'] },
)
const delta = fc.record(
  {
    role: fc.constantFrom('assistant', ''),
    content: fc.oneof(
      text,
      fc.constant(null),
      fc.array(fc.record({ type: fc.constant('text'), text }), { maxLength: 2 }),
    ),
    refusal: fc.oneof(text, fc.constant(null)),
    tool_calls: fc.array(call, { maxLength: 2 }),
    function_call: fc.record({ name: text, arguments: text }),
    audio: fc.record({ id: text, data: text }),
    reasoning_content: text,
    annotations: fc.array(fc.record({ type: text }), { maxLength: 2 }),
  },
  { requiredKeys: [] },
)
const choice = fc.record(
  {
    index: fc.integer({ min: 0, max: 2 }),
    delta,
    finish_reason: fc.constantFrom(null, 'stop', 'length', 'tool_calls'),
    logprobs: fc.oneof(
      fc.constant(null),
      fc.record({ content: fc.array(logprob, { maxLength: 2 }) }),
    ),
    stop_reason: fc.oneof(fc.constant(null), text),
  },
  { requiredKeys: ['index', 'delta'] },
)
const chunk = fc.record(
  {
    id: fc.constant('chatcmpl-1'),
    created: fc.constant(5),
    object: fc.constant('chat.completion.chunk'),
    model: fc.constant('m'),
    choices: fc.array(choice, { maxLength: 3 }),
    system_fingerprint: fc.oneof(text, fc.constant(null)),
    usage: fc.oneof(fc.constant(null), fc.record({ total_tokens: fc.nat() })),
    x_provider: fc.oneof(text, fc.array(fc.nat(), { maxLength: 2 }), fc.record({ a: text })),
  },
  { requiredKeys: ['id', 'created', 'object', 'model', 'choices'] },
)

it('a replayed stream amounts to the very completion that was assembled from the first chunks', () => {
  fc.assert(
    fc.property(fc.array(chunk, { minLength: 1, maxLength: 6 }), (chunks) => {
      const completion = assembleFitting(chunks as readonly JsonObject[])
      expect(canonicalizeJson(replay(completion))).toBe(canonicalizeJson(completion))
    }),
    { numRuns: 400 },
  )
})

it('a replayed stream begins with the role, ends with the reason, and tells the usage apart', () => {
  const { chunks, usage } = replayChunks({
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 5,
    model: 'm',
    choices: [
      {
        index: 0,
        finish_reason: 'stop',
        logprobs: null,
        message: { role: 'assistant', content: 'hi', refusal: null },
      },
    ],
    usage: { total_tokens: 3 },
  })
  const head = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 5, model: 'm' }
  const base = { index: 0, logprobs: null }
  expect(chunks).toEqual([
    {
      ...head,
      choices: [{ ...base, finish_reason: null, delta: { role: 'assistant', content: '' } }],
      usage: null,
    },
    {
      ...head,
      choices: [{ ...base, finish_reason: null, delta: { content: 'hi' } }],
      usage: null,
    },
    {
      ...head,
      choices: [{ ...base, finish_reason: 'stop', delta: { content: '' } }],
      usage: null,
    },
  ])
  expect(usage).toEqual({ ...head, choices: [], usage: { total_tokens: 3 } })
})

/** The completion of those chunks that make no ambiguity with the ones before. */
function assembleFitting(chunks: readonly JsonObject[]): JsonObject {
  const assembly = addChunk(emptyAssembly(), {
    id: 'chatcmpl-1',
    created: 5,
    object: 'chat.completion.chunk',
    model: 'm',
    choices: [],
  })
  for (const one of chunks)
    try {
      addChunk(assembly, one)
    } catch (error) {
      if (!(error instanceof FormatError)) throw error
    }
  return finishAssembly(assembly)
}
