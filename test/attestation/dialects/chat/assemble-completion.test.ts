import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { expect, it } from 'vitest'
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
  const many = Array.from({ length: 10_000 }, () =>
    chunk({
      reasoning: 'word ',
      details: [1, 2, 3],
      tool_calls: [{ index: 0, id: '', function: { arguments: 'x' } }],
    }),
  )
  const before = process.cpuUsage()
  const [only] = choicesOf(many) as readonly {
    message: { reasoning: string; details: readonly Json[] }
  }[]
  expect(only?.message.reasoning).toHaveLength(50_000)
  expect(only?.message.details).toHaveLength(30_000)
  expect(process.cpuUsage(before).user).toBeLessThan(2_000_000)
})

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
      for (const [place, call] of ((message.tool_calls ?? []) as readonly ShownCall[]).entries()) {
        const index = shown.indexes[place] ?? -1
        for (const names of [shown.first, shown.last, shown.appended])
          expect(names.get(index) ?? '').toBe(call.function?.name ?? '')
      }
    }),
    { numRuns: 1_000 },
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
