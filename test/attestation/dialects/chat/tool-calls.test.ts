import { describe, expect, it } from 'vitest'
import {
  addChunk,
  emptyAssembly,
  finishAssembly,
} from '#attestation/dialects/chat/assemble-completion.ts'
import { NO_CHUNKS, normalizeChunk } from '#attestation/dialects/chat/normalize-chunk.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'

const TERMS = {
  usageAsked: false,
  choicesAsked: 1,
  fallback: { id: 'chatcmpl-1', created: 1, model: 'm' },
}

/** Deltas as they are given out after the opening, and the message they amount to. */
function settle(deltas: readonly JsonObject[]) {
  const assembly = emptyAssembly()
  let state = NO_CHUNKS
  const given: JsonObject[] = []
  for (const delta of deltas) {
    const step = normalizeChunk(TERMS, state, { choices: [{ index: 0, delta }] })
    state = step.state
    for (const chunk of step.chunks) {
      addChunk(assembly, chunk)
      given.push((chunk.choices as readonly { readonly delta: JsonObject }[])[0]?.delta ?? {})
    }
  }
  const [choice] = finishAssembly(assembly).choices as readonly { readonly message: JsonObject }[]
  return { given: given.slice(1), message: choice?.message }
}

const callsIn = (deltas: readonly (Json | undefined)[]) =>
  deltas.flatMap((delta) => (delta as JsonObject).tool_calls as readonly Json[])

describe('tool calls of a stream', () => {
  it('normalizeChunk numbers calls that came without an index, each new id a call of its own', () => {
    const { given, message } = settle([
      { tool_calls: [{ id: 'a', function: { name: 'f', arguments: '{' } }] },
      { tool_calls: [{ function: { arguments: '}' } }] },
      {
        tool_calls: [
          { id: 'b', function: { name: 'f', arguments: '[]' } },
          { id: 'd', function: { name: 'h' } },
        ],
      },
      { tool_calls: [{ id: 'd', function: { arguments: ' ' } }] },
    ])
    expect(callsIn(given)).toMatchObject([
      { index: 0 },
      { index: 0 },
      { index: 1 },
      { index: 2 },
      { index: 2 },
    ])
    expect(message).toMatchObject({
      tool_calls: [
        { id: 'a', function: { name: 'f', arguments: '{}' } },
        { id: 'b', function: { name: 'f', arguments: '[]' } },
        { id: 'd', function: { name: 'h', arguments: ' ' } },
      ],
    })
  })

  it('normalizeChunk gives an id, a type and a name once, where the provider repeats them', () => {
    const call = { index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: 'x' } }
    const { given, message } = settle([{ tool_calls: [call] }, { tool_calls: [call, call] }])
    expect(callsIn(given)).toEqual([call, { index: 0, function: { arguments: 'xx' } }])
    expect(message).toMatchObject({
      tool_calls: [{ id: 'a', function: { name: 'f', arguments: 'xxx' } }],
    })
  })

  it('a call waits for its name, and ids that are empty count for none', () => {
    const { given, message } = settle([
      { tool_calls: [{ index: 0, id: '', type: '', function: { name: '', arguments: '{' } }] },
      {
        tool_calls: [
          { index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: '}' } },
        ],
      },
    ])
    expect(callsIn(given)).toEqual([
      { index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } },
    ])
    expect(message).toMatchObject({
      tool_calls: [{ id: 'a', function: { name: 'f', arguments: '{}' } }],
    })
  })

  it('normalizeChunk numbers calls without index and id, as from Gemini, each name a call of its own', () => {
    const call = (city: string) => ({
      id: '',
      type: 'function',
      function: { name: 'f', arguments: city },
    })
    const { message } = settle([
      { tool_calls: [call('"a"'), call('"b"')] },
      { tool_calls: [call('"c"')] },
    ])
    expect(message).toMatchObject({
      tool_calls: ['"a"', '"b"', '"c"'].map((city) => ({
        function: { name: 'f', arguments: city },
      })),
    })
  })

  it('normalizeChunk tells calls apart that all have the index 0, by their ids and names', () => {
    const call = (id: string, name: string, args: string) => ({
      index: 0,
      id,
      type: 'function',
      function: { name, arguments: args },
    })
    const { message } = settle([
      { tool_calls: [call('a', 'f', '{}'), call('b', 'f', '[')] },
      { tool_calls: [{ index: 0, function: { arguments: ']' } }] },
      { tool_calls: [call('c', 'g', '1')] },
      { tool_calls: [{ index: 1, id: 'd', function: { name: 'h', arguments: '2' } }] },
    ])
    expect(message).toMatchObject({
      tool_calls: [
        { id: 'a', function: { name: 'f', arguments: '{}' } },
        { id: 'b', function: { name: 'f', arguments: '[]' } },
        { id: 'c', function: { name: 'g', arguments: '1' } },
        { id: 'd', function: { name: 'h', arguments: '2' } },
      ],
    })
  })

  it('normalizeChunk gives the name of a function_call once', () => {
    const call = { name: 'f', arguments: 'x' }
    const { given, message } = settle([{ function_call: call }, { function_call: call }])
    expect(given).toEqual([{ function_call: call }, { function_call: { arguments: 'x' } }])
    expect(message).toMatchObject({ function_call: { name: 'f', arguments: 'xx' } })
  })

  it('normalizeChunk makes a part of text that follows parts', () => {
    const { given, message } = settle([
      { content: [{ type: 'thinking' }] },
      { content: 'He' },
      { content: '' },
    ])
    expect(given).toEqual([
      { content: [{ type: 'thinking' }] },
      { content: [{ type: 'text', text: 'He' }] },
    ])
    expect(message).toMatchObject({ content: [{ type: 'thinking' }, { type: 'text', text: 'He' }] })
  })

  it.each<[string, readonly JsonObject[]]>([
    ['another name', [{ name: 'refund' }, { name: 'charge' }]],
    ['another name in one chunk', [{ name: 'refund', more: { name: 'charge' } }]],
  ])('normalizeChunk leaves %s of one call for checkChunk to refuse', (_, functions) => {
    const deltas = functions.map(({ more, ...own }) => ({
      tool_calls: [{ index: 0, function: own }, ...(more ? [{ index: 0, function: more }] : [])],
    }))
    expect(() => settle(deltas)).toThrow(expect.objectContaining({ code: 'changed_name' }))
  })
})
