import { expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { createNodeChunks } from '#src/chat/node-chunks.ts'
import { HELLO, nodeChunk, nodeUsage } from '../../support/scripted-dispatcher.ts'

const IDENTITY = { id: 'chatcmpl-ours', created: 1_700_000_000, model: 'asked/for' }

// The rules of streams: test/attestation/dialects/chat, whose cases are read here too.

const open = () => createNodeChunks({ identity: IDENTITY, choicesAsked: 1 })

function readAll(chunks: readonly JsonObject[]): readonly JsonObject[] {
  const reader = open()
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

it("a caller's chunks count the text", () => {
  const reader = open()
  for (const chunk of HELLO) reader.push(chunk)
  expect(reader.textLength()).toBe(5)
})

it('tool calls get an id when the node gives none, and count as text', () => {
  const reader = open()
  const call = { index: 0, function: { name: 'f', arguments: '{}' } }
  const calls = [{ ...call, id: 'call_chatcmplours_0_0', type: 'function' }]
  expect(choiceOf(reader.push(nodeChunk({ tool_calls: [call] }))[1]).delta).toEqual({
    tool_calls: calls,
  })
  expect(reader.textLength()).toBe(JSON.stringify(calls).length)
})

it.each<[string, readonly JsonObject[]]>([
  ['that is done without a choice', []],
  ['that is done before its choice is', [nodeChunk({ content: 'a' })]],
  ['that goes on after the end', [...HELLO, nodeChunk({ content: 'more' })]],
  ['whose function_call has no name', [nodeChunk({ function_call: { arguments: '' } }, 'stop')]],
  ['whose chunk is an error', [{ error: { message: 'out of memory' } }, ...HELLO]],
])('a node is refused %s', (_, chunks) => {
  expect(() => readAll(chunks)).toThrow(FormatError)
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
