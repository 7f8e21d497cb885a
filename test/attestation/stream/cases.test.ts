import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { FormatError } from '../../../attestation/errors.ts'
import { makeWellFormed } from '../../../attestation/json/parse-lenient.ts'
import type { JsonObject } from '../../../attestation/json/value.ts'
import { NO_CHUNKS, normalizeChunk } from '../../../attestation/stream/normalize-chunk.ts'
import { AnswerParser } from '../../../src/agent/answer-parser.ts'
import { createNodeChunks } from '../../../src/chat/node-chunks.ts'
import { startTestEnclave, type TestEnclave } from '../../enclave/support/test-enclave.ts'
import { chunked, EVENT_STREAM_HEAD, send } from '../../support/hostile-answers.ts'
import { type HostileProvider, startHostileProvider } from '../../support/hostile-provider.ts'
import { REFUSED_CASES, STREAM_CASES } from './cases.ts'

const IDENTITY = { id: 'chatcmpl-1', created: 1, model: 'm' }
const QUESTION = { model: 'hostile', messages: [{ role: 'user', content: 'Hi' }] }

/** The bytes of a stream, one by one. */
const bytesOf = (events: readonly string[]): readonly Buffer[] =>
  [...Buffer.from([...events, '[DONE]'].map((data) => `data: ${data}\n\n`).join(''))].map((byte) =>
    Buffer.of(byte),
  )

type Choice = JsonObject & { readonly delta: JsonObject }
const choicesIn = (chunks: readonly JsonObject[]) =>
  chunks.flatMap(({ choices }) => choices as readonly Choice[])

/** Each delta with its finish_reason, after the opening. */
function givenIn(chunks: readonly JsonObject[]): readonly JsonObject[] {
  const [opening, ...rest] = choicesIn(chunks)
  expect(opening?.delta).toEqual({ role: 'assistant', content: '' })
  return rest.map(({ delta, finish_reason: reason }) =>
    reason === null ? delta : { ...delta, finish_reason: reason ?? null },
  )
}

/** Chunk by chunk, as the pure function gives them. */
function readDirectly(events: readonly string[]): readonly JsonObject[] {
  const terms = { usageAsked: false, choicesAsked: 1, fallback: IDENTITY }
  let state = NO_CHUNKS
  return events
    .filter((text) => text.trim() !== '')
    .flatMap((text) => {
      const step = normalizeChunk(terms, state, JSON.parse(text))
      state = step.state
      return step.chunks.map((chunk) => makeWellFormed(chunk) as JsonObject)
    })
}

/** Byte by byte through the agent, then as the gateway gives it to callers. */
function readOfNode(events: readonly string[]): readonly JsonObject[] {
  const parser = new AnswerParser()
  const reader = createNodeChunks({ identity: IDENTITY, choicesAsked: 1 })
  const steps = [...bytesOf(events).map((packet) => parser.push(packet)), parser.end()]
  const given = steps.flatMap(({ chunks, fault }) => {
    if (fault !== null) throw fault
    return chunks.flatMap(({ text }) => reader.push(JSON.parse(text)))
  })
  reader.finish()
  return given
}

let provider: HostileProvider
let enclave: TestEnclave
let events: readonly string[] = []

beforeAll(async () => {
  provider = await startHostileProvider({
    answer: () => [
      send(EVENT_STREAM_HEAD),
      ...bytesOf(events).map((byte) => send(chunked(byte))),
      send(chunked('')),
    ],
  })
  enclave = await startTestEnclave({
    providers: [{ name: 'hostile', origin: provider.origin, path: '/chat', models: ['hostile'] }],
  })
})

afterAll(async () => {
  await enclave.stop()
  await provider.close()
})

describe('what providers and backends send, as all readers see it', () => {
  it.each(STREAM_CASES)(
    '$name is read alike by chunks, by nodes and in the enclave',
    async (one) => {
      const { given, stopReason } = one
      events = one.events
      const { chunks, fault, sealed } = await enclave.stream(QUESTION)
      expect(fault).toBeNull()
      expect(sealed?.outcome).toBe('complete')
      for (const read of [
        readDirectly(events),
        readOfNode(events),
        chunks as unknown as readonly JsonObject[],
      ]) {
        expect(givenIn(read)).toEqual(given)
        expect(choicesIn(read).at(-1)?.stop_reason).toBe(stopReason)
      }
    },
  )

  it.each(REFUSED_CASES)('$name is refused by chunks, of nodes and in the enclave', async (one) => {
    events = one.events
    expect(() => readDirectly(events)).toThrow(FormatError)
    expect(() => readOfNode(events)).toThrow(FormatError)
    const { fault, sealed } = await enclave.stream(QUESTION)
    expect(fault?.code).toBe('provider_error')
    expect(sealed?.outcome ?? 'upstream_error').toBe('upstream_error')
  })
})
