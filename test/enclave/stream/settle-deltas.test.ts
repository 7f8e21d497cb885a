import { describe, expect, it } from 'vitest'
import {
  addChunk,
  emptyAssembly,
  finishAssembly,
} from '../../../attestation/assemble-completion.ts'
import type { Json, JsonObject } from '../../../attestation/json/value.ts'
import { type CallAliases, settleDeltas } from '../../../enclave/stream/settle-deltas.ts'

const head = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm' }
const chunkOf = (delta: JsonObject): JsonObject => ({ ...head, choices: [{ index: 0, delta }] })

/** Deltas as they are given out, and the message they amount to. */
function settle(deltas: readonly JsonObject[]) {
  const assembly = emptyAssembly()
  const aliases: CallAliases = new Map()
  const given = deltas.map((delta) => {
    const settled = settleDeltas(assembly, chunkOf(delta), aliases)
    addChunk(assembly, settled)
    return (settled.choices as readonly JsonObject[])[0]?.delta
  })
  const [choice] = finishAssembly(assembly).choices as readonly { readonly message: JsonObject }[]
  return { given, message: choice?.message }
}

const callsIn = (deltas: readonly (Json | undefined)[]) =>
  deltas.flatMap((delta) => (delta as JsonObject).tool_calls as readonly Json[])

describe('settleDeltas', () => {
  it('settleDeltas gives a chunk without calls and parts as it is', () => {
    const chunk = chunkOf({ content: 'a', tool_calls: null })
    expect(settleDeltas(emptyAssembly(), chunk)).toBe(chunk)
  })

  it('settleDeltas numbers calls that came without an index, each new id a call of its own', () => {
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

  it('settleDeltas gives an id, a type and a name once, where the provider repeats them', () => {
    const call = { index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: 'x' } }
    const { given, message } = settle([{ tool_calls: [call] }, { tool_calls: [call, call] }])
    expect(callsIn(given)).toEqual([
      call,
      { index: 0, function: { arguments: 'x' } },
      { index: 0, function: { arguments: 'x' } },
    ])
    expect(message).toMatchObject({
      tool_calls: [{ id: 'a', function: { name: 'f', arguments: 'xxx' } }],
    })
  })

  it('settleDeltas leaves out ids, types and names that are empty', () => {
    const { given, message } = settle([
      { tool_calls: [{ index: 0, id: '', type: '', function: { name: '', arguments: '{' } }] },
      {
        tool_calls: [
          { index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: '}' } },
        ],
      },
    ])
    expect(callsIn(given)[0]).toEqual({ index: 0, function: { arguments: '{' } })
    expect(message).toMatchObject({
      tool_calls: [{ id: 'a', function: { name: 'f', arguments: '{}' } }],
    })
  })

  it('settleDeltas numbers calls without index and id, as from Gemini, each name a call of its own', () => {
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

  it('settleDeltas tells calls apart that all have the index 0, by their ids and names', () => {
    const call = (id: string, name: string, args: string) => ({
      ...{ index: 0, id, type: 'function' },
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

  it('settleDeltas gives the name of a function_call once', () => {
    const call = { name: 'f', arguments: 'x' }
    const { given, message } = settle([{ function_call: call }, { function_call: call }])
    expect(given).toEqual([{ function_call: call }, { function_call: { arguments: 'x' } }])
    expect(message).toMatchObject({ function_call: { name: 'f', arguments: 'xx' } })
  })

  it('settleDeltas makes a part of text that follows parts', () => {
    const { given, message } = settle([
      { content: [{ type: 'thinking' }] },
      { content: 'He' },
      { content: '' },
    ])
    expect(given).toEqual([
      { content: [{ type: 'thinking' }] },
      { content: [{ type: 'text', text: 'He' }] },
      { content: '' },
    ])
    expect(message).toMatchObject({ content: [{ type: 'thinking' }, { type: 'text', text: 'He' }] })
  })

  it.each<[string, readonly JsonObject[]]>([
    ['another name', [{ name: 'refund' }, { name: 'charge' }]],
    ['another name in one chunk', [{ name: 'refund', more: { name: 'charge' } }]],
  ])('settleDeltas leaves %s of one call for checkChunk to refuse', (_, functions) => {
    const deltas = functions.map(({ more, ...own }) => ({
      tool_calls: [{ index: 0, function: own }, ...(more ? [{ index: 0, function: more }] : [])],
    }))
    expect(() => settle(deltas)).toThrow(expect.objectContaining({ code: 'changed_name' }))
  })
})
