import { afterAll, beforeAll, expect, it } from 'vitest'
import { NO_CHUNKS, normalizeChunk } from '#attestation/dialects/chat/normalize-chunk.ts'
import { FormatError } from '#attestation/errors.ts'
import { makeWellFormed } from '#attestation/json/parse-lenient.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { AnswerParser } from '#src/agent/answer-parser.ts'
import { createNodeChunks } from '#src/chat/node-chunks.ts'
import { startTestEnclave, type TestEnclave } from '../../../enclave/support/test-enclave.ts'
import { chunked, EVENT_STREAM_HEAD, send } from '../../../support/hostile-answers.ts'
import { type HostileProvider, startHostileProvider } from '../../../support/hostile-provider.ts'
import { REFUSED_CASES, STREAM_CASES } from './cases.ts'

const IDENTITY = { id: 'chatcmpl-1', created: 1, model: 'm' }
const QUESTION = { model: 'hostile', messages: [{ role: 'user', content: 'Hi' }] }

const eventsOf = (events: readonly string[]): readonly Buffer[] =>
  [...events, '[DONE]'].map((data) => Buffer.from(`data: ${data}\n\n`))

/** The packets that a stream comes in: all at once, event by event, and byte by byte. */
const DIVISIONS: readonly ((events: readonly string[]) => readonly Buffer[])[] = [
  (events) => [Buffer.concat(eventsOf(events))],
  eventsOf,
  (events) => [...Buffer.concat(eventsOf(events))].map((byte) => Buffer.of(byte)),
]

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

/** Through the agent, then as the gateway gives it to callers. */
function readOfNode(packets: readonly Buffer[]): readonly JsonObject[] {
  const parser = new AnswerParser()
  const reader = createNodeChunks({ identity: IDENTITY, choicesAsked: 1 })
  const steps = [...packets.map((packet) => parser.push(packet)), parser.end()]
  const given = steps.flatMap(({ chunks, fault }) => {
    if (fault !== null) throw fault
    return chunks.flatMap(({ text }) => reader.push(JSON.parse(text)))
  })
  reader.finish()
  return given
}

let provider: HostileProvider
let enclave: TestEnclave
let packets: readonly Buffer[] = []
let document: string | null = null

beforeAll(async () => {
  provider = await startHostileProvider({
    answer: () =>
      document === null
        ? [
            send(EVENT_STREAM_HEAD),
            ...packets.map((packet) => send(chunked(packet))),
            send(chunked('')),
          ]
        : [send(document)],
  })
  enclave = await startTestEnclave({
    providers: [{ name: 'hostile', origin: provider.origin, path: '/chat', models: ['hostile'] }],
    // As an enclave has it.
    limits: { answerBytesMax: 24 * 2 ** 20, pendingBytesMax: 512 * 2 ** 20 },
  })
})

afterAll(async () => {
  await enclave.stop()
  await provider.close()
})

it.each(STREAM_CASES)('$name is read alike by chunks, by nodes and in the enclave', async (one) => {
  const { given, stopReason, events } = one
  packets = eventsOf(events)
  const { chunks, fault, sealed } = await enclave.stream(QUESTION)
  expect(fault).toBeNull()
  expect(sealed?.outcome).toBe('complete')
  const reads = [
    readDirectly(events),
    ...DIVISIONS.map((divide) => readOfNode(divide(events))),
    chunks as unknown as readonly JsonObject[],
  ]
  for (const read of reads) {
    expect(givenIn(read)).toEqual(given)
    expect(choicesIn(read).at(-1)?.stop_reason).toBe(stopReason)
  }
})

// https://github.com/open-webui/open-webui/issues/20634
it('an image of 6 MiB in one event passes the enclave, as it does without a stream', async () => {
  const url = `data:image/png;base64,${'A'.repeat(6 * 2 ** 20)}`
  const delta = { images: [{ type: 'image_url', image_url: { url } }] }
  packets = eventsOf([JSON.stringify({ choices: [{ index: 0, delta, finish_reason: 'stop' }] })])
  const { chunks, sealed } = await enclave.stream(QUESTION)
  expect(sealed?.outcome).toBe('complete')
  expect(givenIn(chunks as unknown as readonly JsonObject[])).toEqual([
    delta,
    { content: '', finish_reason: 'stop' },
  ])
})

// https://github.com/runpod-workers/worker-vllm/issues/57
it('a document that comes in the place of a stream is told with its words', async () => {
  const body = '{"error":{"message":"CUDA out of memory"}}'
  document = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`
  const { status, text } = await enclave.complete({ ...QUESTION, stream: true })
  document = null
  expect(status).toBe(502)
  expect(JSON.parse(text)).toMatchObject({
    code: 'provider_error',
    message:
      'The provider answered with application/json where a stream was asked for: CUDA out of memory',
  })
})

it.each(REFUSED_CASES)('$name is refused by chunks, of nodes and in the enclave', async (one) => {
  const { events } = one
  expect(() => readDirectly(events)).toThrow(FormatError)
  for (const divide of DIVISIONS) expect(() => readOfNode(divide(events))).toThrow(FormatError)
  packets = eventsOf(events)
  const { fault, sealed } = await enclave.stream(QUESTION)
  expect(fault?.code).toBe('provider_error')
  expect(sealed?.outcome ?? 'upstream_error').toBe('upstream_error')
})
