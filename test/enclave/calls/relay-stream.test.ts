import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { parseReceipt } from '#attestation/receipt.ts'
import { hashChunks, hashCompletion } from '#attestation/record-hash.ts'
import type { SealedCompletion } from '#enclave/protocol/enclave-api.ts'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import {
  chunked,
  chunkOf,
  EVENT_STREAM_HEAD,
  eventsOf,
  openHead,
  send,
} from '../../support/hostile-answers.ts'
import {
  type HostileProvider,
  type ReceivedRequest,
  type Step,
  startHostileProvider,
} from '../../support/hostile-provider.ts'
import { until } from '../../support/until.ts'
import { readAnswer, startTestEnclave, type TestEnclave } from '../support/test-enclave.ts'

let provider: HostileProvider
let enclave: TestEnclave
let script: (request: ReceivedRequest) => Iterable<Step>

const question = { model: 'hostile', messages: [{ role: 'user', content: 'Hi' }] }
const withUsage = { ...question, stream_options: { include_usage: true } }
const first = chunkOf({ role: 'assistant', content: '' })
const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 }
const usageChunk = { ...first, choices: [], usage }
const whole = [
  first,
  chunkOf({ content: 'Hel' }),
  chunkOf({ content: 'lo' }),
  chunkOf({}, 'stop'),
  usageChunk,
  '[DONE]',
]
const pause = (durationMs: number): Step => ({ kind: 'pause', durationMs })
const stall: Step = { kind: 'stall' }
/** More comments than an answer may have bytes. */
const flood: Step = { kind: 'repeat', bytes: chunked(`:${'x'.repeat(65534)}\n`), times: 20 }
const full = 'data: {"error":{"message":"full"}}\n\n'

/** A stream of these bytes, each part a packet, with a proper end. */
function* streamOf(...parts: readonly (string | Uint8Array)[]): Generator<Step, void> {
  yield send(EVENT_STREAM_HEAD)
  for (const part of parts) yield send(chunked(part))
  yield send(chunked(''))
}

/** A stream of these bytes that goes on as `then` says. */
function brokenStream(text: string, then: readonly Step[]): readonly Step[] {
  return [send(EVENT_STREAM_HEAD), send(chunked(text)), ...then]
}

beforeAll(async () => {
  provider = await startHostileProvider({ answer: (request) => script(request) })
  enclave = await startTestEnclave({
    providers: [{ name: 'hostile', origin: provider.origin, path: '/chat', models: ['hostile'] }],
    limits: {
      firstByteTimeoutMs: 2_000,
      idleTimeoutMs: 1_000,
      answerTimeoutMs: 4_000,
      drainTimeoutMs: 1_000,
      answerBytesMax: 2 ** 20,
    },
  })
})

afterAll(async () => {
  await enclave.stop()
  await provider.close()
})

beforeEach(async () => {
  script = () => streamOf(eventsOf(whole))
  await enclave.takeAll()
})

async function takeOne(): Promise<SealedCompletion & { readonly completion: Completion }> {
  const [sealed, ...others] = await enclave.takeAll()
  if (sealed === undefined || others.length > 0)
    throw new Error('expected one completion in the log')
  return { ...sealed, completion: JSON.parse(sealed.response ?? '') as Completion }
}

type Completion = {
  readonly usage?: object
  readonly choices: readonly {
    readonly finish_reason: string | null
    readonly logprobs: { readonly content: readonly object[] } | null
    readonly message: { readonly content: string | null; readonly tool_calls?: readonly object[] }
  }[]
}

/** The choices of an answer that broke off after its first text. */
const BEGUN = [
  {
    index: 0,
    message: expect.objectContaining({ content: 'Hel' }),
    logprobs: null,
    finish_reason: null,
  },
]

const receiptOf = ({ receipt }: SealedCompletion) =>
  parseReceipt(parseStrictJson(Buffer.from(receipt)))
const contentOf = ({ completion }: { readonly completion: Completion }) =>
  completion.choices[0]?.message.content

describe('a stream', () => {
  it('a stream passes its chunks on, then says that it was sealed', async () => {
    const { status, chunks, sealed, fault } = await enclave.stream(question)
    expect(status).toBe(200)
    expect(chunks.map(({ choices }) => choices[0]?.delta)).toEqual([
      { role: 'assistant', content: '' },
      { content: 'Hel' },
      { content: 'lo' },
      { content: '' },
    ])
    expect(chunks.map((chunk) => chunk.usage)).toEqual([null, null, null, null])
    expect(fault).toBe(null)
    const taken = await takeOne()
    expect(sealed).toEqual({
      notary: enclave.enclave.notary,
      index: taken.index,
      outcome: 'complete',
    })
    expect(contentOf(taken)).toBe('Hello')
    expect(taken.completion.usage).toEqual(usage)
  })

  it('a stream comes through while the provider still speaks', async () => {
    const { promise: goOn, resolve: go } = Promise.withResolvers<void>()
    script = () => [
      send(EVENT_STREAM_HEAD),
      send(chunked(eventsOf([first]))),
      { kind: 'wait', until: goOn },
      send(chunked(eventsOf(whole.slice(1)))),
      send(chunked('')),
    ]
    const call = enclave.open({ stream: true, ...question })
    call.once('response', () => go())
    expect((await readAnswer(call)).text).toContain('event: sealed')
  })

  it.each<[string, string]>([
    ['one event for each byte', eventsOf(whole)],
    [
      'all events in one packet, with comments',
      `\uFEFF: hi\n\n${eventsOf(whole)}`.replaceAll('\n\n', '\n\n: ping\n\n'),
    ],
  ])('a stream is understood with %s', async (name, text) => {
    const bytes = Buffer.from(text)
    script = () =>
      name.includes('each byte')
        ? streamOf(...[...bytes].map((byte) => Uint8Array.of(byte)))
        : streamOf(text)
    expect((await enclave.stream(question)).sealed?.outcome).toBe('complete')
    expect(contentOf(await takeOne())).toBe('Hello')
  })

  it('a stream without [DONE] is complete when all is finished, by length or by connection', async () => {
    script = () => streamOf(eventsOf(whole.slice(0, -1)))
    expect((await enclave.stream(question)).sealed?.outcome).toBe('complete')
    script = () => [
      send(openHead('text/event-stream')),
      send(eventsOf(whole.slice(0, -2))),
      { kind: 'end' },
    ]
    expect((await enclave.stream(withUsage)).sealed?.outcome).toBe('complete')
  })

  it('a stream is complete at [DONE], whatever happens to the connection after it', async () => {
    const text = eventsOf(whole)
    for (const then of [
      [{ kind: 'reset' }],
      [{ kind: 'end' }],
      [send(chunked('data: {"more":1}\n\n')), stall],
    ] as const) {
      script = () => brokenStream(text, then)
      const { sealed, fault } = await enclave.stream(withUsage)
      expect([sealed?.outcome, fault]).toEqual(['complete', null])
    }
    expect((await enclave.takeAll()).map(({ response }) => response)).toHaveLength(3)
  })

  // https://github.com/openclaw/openclaw/issues/152535
  it('a stream may send comments alone, before its data past the first-byte timeout and amid them past the idle timeout', async () => {
    const wait = [...comments()].slice(1, 50)
    const [start, ...events] = [...streamOf(eventsOf(whole))]
    script = () => [start as Step, ...wait, ...events]
    expect((await enclave.stream(question)).sealed?.outcome).toBe('complete')
    const text = eventsOf(whole)
    const middle = text.indexOf('\n\n') + 2
    const [begin, end] = [text.slice(0, middle), text.slice(middle)]
    script = () => [...brokenStream(begin, wait), ...[...streamOf(end)].slice(1)]
    expect((await enclave.stream(question)).sealed?.outcome).toBe('complete')
  })
})

describe('a stream that fails before its first chunk', () => {
  it.each<[string, () => Iterable<Step>, string]>([
    ['no bytes', () => [stall], 'provider_timeout'],
    ['comments for ever', () => comments(), 'provider_timeout'],
    ['an error event', () => streamOf(`event: error\n${full}`), 'provider_error'],
    ['no JSON', () => streamOf('data: {"choices\n\n'), 'provider_error'],
    ['a lost connection', () => brokenStream(': hi\n\n', [{ kind: 'reset' }]), 'provider_error'],
    ['too many bytes', () => [send(EVENT_STREAM_HEAD), flood], 'answer_too_large'],
  ])(
    'a stream that fails before its first chunk gives a status and no record: %s',
    async (_, steps, code) => {
      script = steps
      const status = code === 'provider_timeout' ? 504 : 502
      const answer = await enclave.complete({ stream: true, ...question })
      expect(answer.json).toMatchObject({ status, code })
      expect(answer.status).toBe(status)
      expect(await enclave.takeAll()).toEqual([])
    },
  )
})

function* comments(): Generator<Step, void> {
  yield send(EVENT_STREAM_HEAD)
  for (let time = 0; time < 100; time++) {
    yield send(chunked(': ping\n\n'))
    yield pause(50)
  }
}

describe('a stream that breaks off', () => {
  const begun = eventsOf([first, chunkOf({ content: 'Hel' })])

  it.each<[string, readonly Step[], string]>([
    ['by a reset', [{ kind: 'reset' }], 'provider_error'],
    ['by a stall', [stall], 'provider_timeout'],
    ['by comments for ever', [...comments()].slice(1), 'provider_timeout'],
    ['by an event that is no JSON', [send(chunked('data: {"choices\n\n'))], 'provider_error'],
    ['by too many bytes', [flood], 'answer_too_large'],
  ])('a stream broken off %s gives a fault and a record of what came', async (_, then, code) => {
    script = () => brokenStream(begun, then)
    const { status, text, chunks, fault, sealed } = await enclave.stream(withUsage)
    expect(status).toBe(200)
    expect(fault?.code).toBe(code)
    expect(text.indexOf('event: fault')).toBeLessThan(text.indexOf('event: sealed'))
    const taken = await takeOne()
    expect(sealed).toEqual({
      notary: enclave.enclave.notary,
      index: taken.index,
      outcome: 'upstream_error',
    })
    expect(taken.completion.choices).toEqual(BEGUN)
    const response = assembleCompletion(chunks as unknown as readonly JsonObject[])
    const { responseHash } = hashCompletion({ request: {}, response })
    expect(receiptOf(taken)).toMatchObject({
      outcome: 'upstream_error',
      response_hash: responseHash,
      stream_hash: hashChunks(chunks as unknown as readonly JsonObject[]),
    })
  })

  it('a stream that breaks off passes on the good chunk in the packet of the bad one', async () => {
    script = () => streamOf(`${eventsOf([first, chunkOf({ content: 'Hel' })])}data: {\n\n`)
    const { chunks, sealed } = await enclave.stream(question)
    expect(chunks.map(({ choices }) => choices[0]?.delta.content)).toEqual(['', 'Hel'])
    expect(sealed?.outcome).toBe('upstream_error')
    expect(contentOf(await takeOne())).toBe('Hel')
  })
})

describe('the last chunk of a stream', () => {
  const namesOf = (text: string) =>
    text
      .split('\n\n')
      .flatMap((event) => (event === '' ? [] : [/^event: (.*)/.exec(event)?.[1] ?? 'chunk']))

  it('the last chunk is marked as the last once that is known, and is in the stream hash', async () => {
    for (const [asked, count] of [
      [question, 3],
      [withUsage, 4],
    ] as const) {
      const { text, chunks } = await enclave.stream(asked)
      expect(namesOf(text)).toEqual([
        ...Array.from({ length: count }, () => 'chunk'),
        'last',
        'sealed',
      ])
      const given = chunks as unknown as readonly JsonObject[]
      const taken = await takeOne()
      expect(receiptOf(taken)).toMatchObject({
        version: 1,
        stream_hash: hashChunks(given),
        encrypted: false,
      })
    }
  })

  it('the last chunk is held until the next event, and given as any other if the stream breaks off', async () => {
    script = () => brokenStream(eventsOf([first, chunkOf({ content: 'a' }, 'stop')]), [stall])
    const { text, chunks, fault } = await enclave.stream({ ...question, n: 2 })
    expect(namesOf(text)).toEqual(['chunk', 'chunk', 'chunk', 'fault', 'sealed'])
    expect(chunks.at(-1)).toMatchObject({ choices: [{ finish_reason: 'stop' }] })
    expect(fault?.code).toBe('provider_timeout')
    const { receipt } = await takeOne()
    expect(JSON.parse(receipt).stream_hash).toBe(
      hashChunks(chunks as unknown as readonly JsonObject[]),
    )
  })

  it('the last chunk says nothing where others follow the finish_reason', async () => {
    const filtered = {
      ...first,
      choices: [{ index: 0, delta: {}, filter_results: { hate: false } }],
    }
    script = () =>
      streamOf(eventsOf([first, chunkOf({ content: 'a' }, 'stop'), filtered, '[DONE]']))
    const { text, chunks } = await enclave.stream(question)
    expect(namesOf(text)).toEqual(['chunk', 'chunk', 'chunk', 'chunk', 'last', 'sealed'])
    expect(chunks.at(-2)).toMatchObject({ choices: [{ filter_results: { hate: false } }] })
    expect(chunks.at(-1)).toMatchObject({ choices: [{ delta: { content: '' } }] })
  })
})

describe('a gateway that goes away', () => {
  /** A stream whose first bytes came. */
  async function openBegun(more: { readonly outlives_gateway?: true } = {}) {
    const call = enclave.open({ stream: true, ...question }, more)
    call.on('error', () => undefined)
    await new Promise((resolve) =>
      call.once('response', (response) => response.once('data', resolve)),
    )
    return call
  }

  async function leaveAfter(text: string, then: readonly Step[]): Promise<void> {
    script = () => brokenStream(text, then)
    const { size } = (await enclave.identity()).log
    const call = await openBegun()
    const left = performance.now()
    call.destroy()
    await provider.requests.at(-1)?.closed
    expect(performance.now() - left).toBeLessThan(AT_ONCE_MS)
    await until('its record', async () => (await enclave.identity()).log.size > size)
  }

  it('a gateway that leaves ends the provider’s request at once, and a record of what came stays', async () => {
    await leaveAfter(eventsOf([first, chunkOf({ content: 'Hel' })]), [stall])
    const taken = await takeOne()
    expect(receiptOf(taken).outcome).toBe('client_disconnected')
    expect(taken.completion.choices).toEqual(BEGUN)
  })

  it('a call that outlives its gateway goes on after the gateway left, however much is to come', async () => {
    const { promise: goOn, resolve: go } = Promise.withResolvers<void>()
    const piece = 'x'.repeat(1_000)
    script = function* () {
      yield send(EVENT_STREAM_HEAD)
      yield send(chunked(eventsOf([first])))
      yield { kind: 'wait', until: goOn }
      for (let sent = 0; sent < 500; sent++)
        yield send(chunked(eventsOf([chunkOf({ content: piece })])))
      yield send(chunked(eventsOf([chunkOf({}, 'stop'), '[DONE]'])))
      yield send(chunked(''))
    }
    const { size } = (await enclave.identity()).log
    const call = await openBegun({ outlives_gateway: true })
    const closed = new Promise((resolve) => call.once('close', resolve))
    call.destroy()
    await closed
    go()
    await until('its record', async () => (await enclave.identity()).log.size === size + 1)
    const taken = await takeOne()
    expect(receiptOf(taken).outcome).toBe('complete')
    expect(contentOf(taken)).toHaveLength(500_000)
  })
})
