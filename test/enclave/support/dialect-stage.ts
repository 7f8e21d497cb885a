import { createHash } from 'node:crypto'
import { expect } from 'vitest'
import { EventParser } from '#attestation/dialects/chat/event-parser.ts'
import type { DialectEvent } from '#attestation/dialects/dialect.ts'
import { EVENT_DIALECTS } from '#attestation/dialects/dialects.ts'
import { splitNamedEvents } from '#attestation/dialects/event-text.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { type RecordReport, verifyRecord } from '#attestation/verify-record.ts'
import { verifyEventStream } from '#attestation/verify-stream.ts'
import type { EnclaveFault, SealedCompletion } from '#enclave/protocol/enclave-api.ts'
import { messagesStream } from '../../attestation/dialects/messages-streams.ts'
import { responsesStream } from '../../attestation/dialects/responses-streams.ts'
import { chunked, EVENT_STREAM_HEAD, send } from '../../support/hostile-answers.ts'
import {
  type HostileProvider,
  type ReceivedRequest,
  type Step,
  startHostileProvider,
} from '../../support/hostile-provider.ts'
import { startTestEnclave, type TestEnclave, type TestOptions } from './test-enclave.ts'

export const EVENT_NAMES = ['responses', 'messages'] as const
export type EventName = (typeof EVENT_NAMES)[number]

/** A request of each dialect. */
export const QUESTIONS: Readonly<Record<EventName, JsonObject>> = {
  responses: { model: 'hostile', input: 'Hi', stream: true },
  messages: {
    model: 'hostile',
    max_tokens: 100,
    messages: [{ role: 'user', content: 'Hi' }],
    stream: true,
  },
}

/** A genuine stream of each dialect: thinking, a text and a call of a tool. */
export const STREAMS: Readonly<Record<EventName, readonly JsonObject[]>> = {
  responses: responsesStream([
    { kind: 'reasoning', id: 'rs_1', pieces: ['I ', 'look'] },
    { kind: 'message', id: 'msg_1', pieces: ['Hel', 'lo'] },
    { kind: 'call', id: 'fc_1', pieces: ['{"path":', '"a.txt"}'] },
  ]),
  messages: messagesStream([
    { kind: 'thinking', pieces: ['I ', 'look'], signature: 'c2ln' },
    { kind: 'text', pieces: ['Hel', 'lo'] },
    { kind: 'tool', id: 'toolu_1', pieces: ['{"path":', '"a.txt"}'] },
  ]),
}

/** The text of an event as a provider sends it. */
export function textOf(data: JsonObject, event: Json = data.type ?? ''): string {
  return `${event === '' ? '' : `event: ${String(event)}\n`}data: ${JSON.stringify(data)}\n\n`
}

/** The text of a stream. Text among the events stays as it is. */
export function streamText(events: readonly (JsonObject | string)[]): string {
  return events.map((event) => (typeof event === 'string' ? event : textOf(event))).join('')
}

/** A stream of these packets with a proper end. */
export function stepsOf(...packets: readonly (string | Uint8Array)[]): readonly Step[] {
  return [send(EVENT_STREAM_HEAD), ...packets.map((each) => send(chunked(each))), send(chunked(''))]
}

/** What a caller and the log got of one streamed call. */
export type Outcome = {
  readonly status: number
  /** The fault of the call, before or after the first event. Null if the answer is complete. */
  readonly fault: EnclaveFault | null
  /** What was given out, without the proof. */
  readonly given: readonly DialectEvent[]
  readonly text: string
  /** The sealed answer. Null if no record was sealed. */
  readonly response: JsonObject | null
  readonly outcome: string | null
}

export type DialectStage = {
  readonly enclave: TestEnclave
  readonly provider: HostileProvider
  /** Asks for an answer that the provider plays, and checks what was sealed. */
  play(name: EventName, steps: Iterable<Step>, question?: JsonObject): Promise<Outcome>
  stop(): Promise<void>
}

/** Starts an enclave whose provider plays the steps of each call in both dialects. */
export async function startDialectStage(limits: TestOptions['limits']): Promise<DialectStage> {
  let script: (request: ReceivedRequest) => Iterable<Step> = () => []
  const provider = await startHostileProvider({ answer: (request) => script(request) })
  const entry = {
    name: 'hostile',
    origin: provider.origin,
    path: '/chat',
    models: ['hostile'],
    endpoints: { responses: { path: '/responses' }, messages: { path: '/messages' } },
  }
  const enclave = await startTestEnclave({ providers: [entry], ...(limits ? { limits } : {}) })
  return {
    enclave,
    provider,
    play: async (name, steps, question = QUESTIONS[name]) => {
      script = () => steps
      const { status, text } = await enclave.complete(question, {}, name)
      const sealed = await enclave.takeAll()
      expect(sealed.length).toBeLessThanOrEqual(1)
      return readOutcome(enclave, { name, status, text, sealed: sealed[0] ?? null })
    },
    stop: async () => {
      await enclave.stop()
      await provider.close()
    },
  }
}

type Answered = {
  readonly name: EventName
  readonly status: number
  readonly text: string
  readonly sealed: SealedCompletion | null
}

/** Reads an answer, and checks that its record covers exactly what was given out. */
function readOutcome(enclave: TestEnclave, { name, status, text, sealed }: Answered): Outcome {
  if (status !== 200) {
    expect(sealed).toBeNull()
    return { status, fault: JSON.parse(text), given: [], text, response: null, outcome: null }
  }
  if (sealed === null) throw new Error(`expected a record of ${text}`)
  const parsed = new EventParser().push(Buffer.from(text))
  const response = JSON.parse(sealed.response ?? 'null')
  if (!text.includes('event: sealed')) {
    expectProven(recordReport(enclave, sealed))
    return { status, fault: null, given: [], text, response, outcome: 'complete' }
  }
  const own = ['last', 'sealed', 'fault']
  const last = parsed.find(({ event }) => event === 'last')
  const fault = parsed.find(({ event }) => event === 'fault')
  const plain = parsed.filter(({ event }) => !own.includes(event))
  const events = plain.map(({ event, data }) => `event: ${event}\ndata: ${data}\n\n`).join('')
  const dialect = EVENT_DIALECTS[name]
  const end = last === undefined ? '' : dialect.endStream(last.data, proofOf(enclave, sealed))
  const kept = splitNamedEvents(Buffer.from(events + end))
  const reader = dialect.openStream()
  const given = kept.flatMap((event) => reader.read(event))
  const receipt = JSON.parse(sealed.receipt)
  const digest = createHash('sha256')
    .update(given.map((event) => `${canonicalizeJson(event)}\n`).join(''))
    .digest('hex')
  expect(receipt.stream_hash).toBe(digest)
  expect(response).toEqual(reader.response())
  expect(reader.isEnded).toBe(receipt.outcome === 'complete')
  expect(fault === undefined).toBe(receipt.outcome === 'complete')
  expectProven(recordReport(enclave, sealed))
  if (last !== undefined) {
    const request = parseExactJson(Buffer.from(sealed.request ?? ''))
    expectProven(verifyEventStream(kept, { request }), 'stream hash')
  }
  return {
    status,
    fault: fault === undefined ? null : JSON.parse(fault.data),
    given,
    text,
    response,
    outcome: receipt.outcome,
  }
}

/** The checks of a record in the form that is stored. */
function recordReport(enclave: TestEnclave, sealed: SealedCompletion): RecordReport {
  const text =
    `{"request":${sealed.request},"response":${sealed.response},` + `${proofOf(enclave, sealed)}}`
  return verifyRecord(parseExactJson(Buffer.from(text)))
}

function expectProven({ checks }: RecordReport, ...more: readonly string[]): void {
  const names = ['request hash', 'response hash', 'hash', 'signature', ...more]
  const passed = checks.filter(({ outcome }) => outcome === 'passed').map(({ name }) => name)
  expect(passed).toEqual(expect.arrayContaining(names))
  // Nothing gives these parts here.
  const missing = ['created_at', 'attestation key', 'receipt in log', 'tree head']
  const failed = checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
  expect(failed.filter((name) => !missing.includes(name))).toEqual([])
}

/** The members of a proof as text, as the gateway writes them. */
function proofOf({ enclave }: TestEnclave, sealed: SealedCompletion): string {
  const { hash } = JSON.parse(sealed.receipt)
  const names = { hash, public_key: enclave.publicKey, signature: sealed.signature }
  return `${JSON.stringify(names).slice(1, -1)},"receipt":${sealed.receipt}`
}
