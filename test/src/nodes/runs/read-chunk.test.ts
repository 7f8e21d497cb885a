import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { CHOICES_MAX, readChunk } from '#src/nodes/runs/read-chunk.ts'

const chunkOf = (delta: JsonObject, more: JsonObject = {}): JsonObject => ({
  choices: [{ index: 0, delta, finish_reason: null, ...more }],
})

it.each([
  ['text', { content: 'héllo' }, 5],
  ['reasoning, by whatever name', { reasoning_content: 'abc', thinking: 'de' }, 5],
  ['a tool call', { tool_calls: [{ index: 0, function: { name: 'f', arguments: '{}' } }] }, 3],
  ['a role alone, which is no text', { role: 'assistant', content: '' }, 0],
  ['nothing', {}, 0],
] as const)('a chunk with %s has as much text as the caller sees', (_, delta, textLength) => {
  expect(readChunk(chunkOf(delta), 32)).toMatchObject({
    textLength,
    isToken: textLength > 0,
    finished: [],
  })
})

it('a chunk that finishes a choice counts as a token', () => {
  expect(readChunk(chunkOf({}, { finish_reason: 'stop', index: 3 }), 32)).toMatchObject({
    isToken: true,
    finished: [3],
  })
})

it('a chunk with usage and no choices is the usage-only chunk', () => {
  const usage = { prompt_tokens: 1 }
  expect(readChunk({ choices: [], usage }, 32)).toMatchObject({ isUsageOnly: true, usage })
  expect(readChunk({ ...chunkOf({}), usage }, 32)).toMatchObject({ isUsageOnly: false, usage })
  expect(readChunk({ choices: [], usage: null }, 32)).toMatchObject({
    isUsageOnly: false,
    usage: undefined,
  })
})

it.each<[string, JsonObject, boolean]>([
  ['usage', { usage: { prompt_tokens: 1 } }, true],
  ['the name of a chunk', { object: 'chat.completion.chunk' }, false],
])('a chunk with %s may have no choices', (_, chunk, isUsageOnly) => {
  for (const given of [chunk, { ...chunk, choices: null }])
    expect(readChunk(given, 32)).toMatchObject({ isToken: false, isUsageOnly })
})

it('a chunk may leave out index and delta, as some backends do', () => {
  const facts = readChunk({ choices: [{ finish_reason: 'stop' }] }, 32)
  expect(facts).toMatchObject({ textLength: 0, isToken: true, finished: [0] })
  expect(readChunk({ choices: [{ finish_reason: '' }] }, 32)).toMatchObject({ isToken: false })
})

it.each([
  ['no choices', {}],
  ['choices that are an object', { choices: {} }],
  ['a choice that is null', { choices: [null] }],
  ['a delta in text', { choices: [{ index: 0, delta: 'x' }] }],
  ['a fractional index', { choices: [{ index: 0.5, delta: {} }] }],
  ['an index that is too large', { choices: [{ index: CHOICES_MAX, delta: {} }] }],
] as const)('a chunk with %s is refused', (_, chunk) => {
  expect(readChunk(chunk, 32)).toBeNull()
})

it('a chunk may be as deep as the bound and no deeper', () => {
  // The chunk is 1, choices 2, the choice 3, its delta 4.
  const nested = { a: [[]] }
  expect(readChunk(chunkOf(nested), 6)).not.toBeNull()
  expect(readChunk(chunkOf(nested), 5)).toBeNull()
})

it('a chunk of any form gives facts or null, and never throws', () => {
  const members = fc.dictionary(
    fc.constantFrom('index', 'delta', 'finish_reason', '__proto__'),
    fc.jsonValue(),
  )
  const chunks = fc.record({
    choices: fc.oneof(fc.jsonValue(), fc.array(members)),
    usage: fc.jsonValue(),
  })
  fc.assert(
    fc.property(chunks, (chunk) => {
      const facts = readChunk(JSON.parse(JSON.stringify(chunk)) as JsonObject, 32)
      expect(facts === null || facts.textLength >= 0).toBe(true)
    }),
  )
})
