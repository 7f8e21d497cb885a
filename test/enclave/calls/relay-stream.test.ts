import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
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

const receiptOf = ({ receipt }: SealedCompletion) =>
  parseReceipt(parseStrictJson(Buffer.from(receipt)))
const contentOf = ({ completion }: { readonly completion: Completion }) =>
  completion.choices[0]?.message.content
const sha256 = (bytes: string | Uint8Array) => createHash('sha256').update(bytes).digest('hex')

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

  it('a stream is received, forwarded and hashed byte for byte', async () => {
    const text = eventsOf(whole)
    await enclave.stream(question)
    const forwarded = Buffer.from(provider.requests.at(-1)?.body ?? [])
    expect(forwarded.toString()).toBe(
      '{"stream":true,"model":"hostile","messages":[{"role":"user","content":"Hi"}],"stream_options":{"include_usage":true}}',
    )
    expect(provider.requests.at(-1)?.headers.get('accept')).toBe('text/event-stream')
    const taken = await takeOne()
    expect(receiptOf(taken)).toMatchObject({
      received_hash: sha256(text),
      forwarded_hash: sha256(forwarded),
      outcome: 'complete',
    })
    expect(taken.request).not.toContain('include_usage')
  })

  it('the chunks that a caller kept, with usage, give the response hash of the receipt', async () => {
    const { chunks } = await enclave.stream(withUsage)
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage })
    const response = assembleCompletion(chunks as unknown as readonly JsonObject[])
    const { responseHash, requestHash } = hashCompletion({
      request: { stream: true, ...withUsage },
      response,
    })
    expect(receiptOf(await takeOne())).toMatchObject({
      response_hash: responseHash,
      request_hash: requestHash,
    })
  })

  it('a stream of many text chunks is given and recorded as if each chunk were read by itself', async () => {
    const texts = [
      'Hel',
      'lo',
      ' w\u00f6rld',
      '\n',
      'a "quoted" \\ one',
      '\u{1f600}',
      '',
      'x',
      '{}',
    ]
    const words = Array.from({ length: 60 }, (_, at) => texts[at % texts.length] ?? '')
    const chunks = words.map((content, at) => ({
      ...chunkOf({ content }),
      system_fingerprint: at < 30 ? 'before' : 'after',
      ...(at > 10 ? { obfuscation: 'x'.repeat(at % 7) } : {}),
      usage: { ...usage, completion_tokens: at < 45 ? 1 : 2 },
    }))
    const events = [first, ...chunks, chunkOf({}, 'stop'), '[DONE]']
    const [alike, apart] = [events, events.map((event, at) => spaced(event, at))].map((all) =>
      Buffer.from(all.map((event) => `data: ${writeEvent(event)}\n\n`).join('')),
    )
    const taken: (JsonObject | undefined)[] = []
    for (const body of [alike, apart]) {
      script = () => streamOf(body ?? '')
      const { chunks: given } = await enclave.stream(withUsage)
      const { receipt } = await takeOne()
      const { response_hash, stream_hash } = JSON.parse(receipt)
      const response = assembleCompletion(given as unknown as readonly JsonObject[])
      expect(hashCompletion({ request: {}, response }).responseHash).toBe(response_hash)
      expect(hashChunks(given as unknown as readonly JsonObject[])).toEqual(stream_hash)
      expect(given.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('')).toBe(
        words.join(''),
      )
      taken.push(...(given as unknown as readonly JsonObject[]))
    }
    expect(taken.slice(0, taken.length / 2)).toEqual(taken.slice(taken.length / 2))
  })

  it('a stream comes through while the provider still speaks', async () => {
    script = () => [
      send(EVENT_STREAM_HEAD),
      send(chunked(eventsOf([first]))),
      pause(200),
      send(chunked(eventsOf(whole.slice(1)))),
      send(chunked('')),
    ]
    const call = enclave.open({ stream: true, ...question })
    let responded = Number.POSITIVE_INFINITY
    call.once('response', () => {
      responded = performance.now()
    })
    expect((await readAnswer(call)).text).toContain('event: sealed')
    expect(performance.now() - responded).toBeGreaterThan(100)
  })

  it.each(['\n', '\r\n', '\r'] as const)(
    'a stream with line breaks %j, split at any byte, gives the same result',
    async (lineBreak) => {
      const text = Buffer.from(
        eventsOf([first, chunkOf({ content: 'é😀' }), chunkOf({}, 'stop'), '[DONE]'], lineBreak),
      )
      const responses = new Set<string>()
      for (let position = 1; position < text.length; position += 5) {
        script = () => streamOf(text.subarray(0, position), text.subarray(position))
        expect((await enclave.stream(question)).sealed?.outcome).toBe('complete')
      }
      for (const { response } of await enclave.takeAll()) responses.add(response ?? '')
      expect([...responses]).toEqual([expect.stringContaining('"content":"é😀"')])
    },
  )

  it.each<[string, string]>([
    ['one event for each byte', eventsOf(whole)],
    [
      'all events in one packet, with comments',
      `\uFEFF: hi\n\n${eventsOf(whole)}`.replaceAll('\n\n', '\n\n: ping\n\n'),
    ],
    ['no blank line at the end', eventsOf(whole).trimEnd()],
    ['an event over several data lines', eventsOf(whole).replace('"choices"', '\ndata: "choices"')],
    [
      'ids, retries and names',
      eventsOf(whole).replaceAll('data:', 'id: 1\nretry: 5\nevent: chunk\ndata:'),
    ],
    ['empty data', `data:\n\n${eventsOf(whole)}`],
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

  it('a stream holds tool calls, several choices, logprobs and refusals as they add up', async () => {
    const call = (index: number, more: object) => ({ tool_calls: [{ index, ...more }] })
    const second = (delta: object, finish: string | null = null) => ({
      ...first,
      choices: [{ index: 1, delta, finish_reason: finish }],
    })
    const chunks = [
      chunkOf({
        role: 'assistant',
        content: null,
        ...call(0, { id: 'a', type: 'function', function: { name: 'f', arguments: '' } }),
      }),
      chunkOf(call(0, { function: { arguments: '{"x":' } })),
      second({ refusal: 'No' }),
      chunkOf(call(1, { id: 'b', type: 'function', function: { name: 'g', arguments: '{}' } })),
      chunkOf(call(0, { function: { arguments: '1}' } }), null, {
        content: [{ token: 'a', logprob: -0.5 }],
        refusal: null,
      }),
      second({ refusal: ' way' }, 'stop'),
      chunkOf({}, 'tool_calls', { content: [{ token: 'b', logprob: 1e-7 }], refusal: null }),
      '[DONE]',
    ]
    script = () => streamOf(eventsOf(chunks))
    const streamed = await enclave.stream({ ...withUsage, n: 2 })
    expect(streamed.sealed?.outcome).toBe('complete')
    const { completion } = await takeOne()
    expect(completion.choices).toMatchObject([
      {
        index: 0,
        finish_reason: 'tool_calls',
        logprobs: { content: [{ token: 'a' }, { token: 'b', logprob: 1e-7 }] },
        message: {
          content: null,
          tool_calls: [
            { id: 'a', type: 'function', function: { name: 'f', arguments: '{"x":1}' } },
            { id: 'b', type: 'function', function: { name: 'g', arguments: '{}' } },
          ],
        },
      },
      { index: 1, finish_reason: 'stop', message: { content: null, refusal: 'No way' } },
    ])
  })

  // https://github.com/elizaOS/eliza/issues/30904
  it('halves of a character that a stream cut are joined, for the caller as in the record', async () => {
    const cut = '{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}'
    const rest =
      '{"choices":[{"index":0,"delta":{"content":"\\ude00\\u0000"},"logprobs":{"content":[{"token":"a","logprob":-0},{"token":"b","logprob":1.0}]},"finish_reason":"stop"}]}'
    script = () => streamOf(eventsOf([cut, rest, '[DONE]']))
    const { chunks } = await enclave.stream(question)
    expect(chunks.map(({ choices }) => choices[0]?.delta.content).join('')).toBe('\u{1F600}\u0000')
    const taken = await takeOne()
    expect(contentOf(taken)).toBe('\u{1F600}\u0000')
    expect(taken.response).toContain('"logprob":0,')
    expect(taken.response).toContain('"logprob":1,')
  })

  it('a stream carries no member that only the gateway may speak', async () => {
    const forged = {
      ...chunkOf({ content: 'a' }, 'stop'),
      hash: 'forged',
      receipt: { forged: 1 },
      signature: 'forged',
    }
    script = () => streamOf(eventsOf([forged, '[DONE]']))
    const { text } = await enclave.stream(question)
    expect(text).not.toContain('forged')
    expect((await takeOne()).response).not.toContain('forged')
  })

  it('a stream may send comments alone past the idle timeout, within the first-byte timeout', async () => {
    script = () => [
      send(EVENT_STREAM_HEAD),
      pause(600),
      send(chunked(': ping\n\n')),
      pause(600),
      ...[...streamOf(eventsOf(whole))].slice(1),
    ]
    expect((await enclave.stream(question)).sealed?.outcome).toBe('complete')
  })
})

describe('a stream that fails before its first chunk', () => {
  it.each<[string, () => Iterable<Step>, number, string]>([
    ['no bytes', () => [stall], 504, 'provider_timeout'],
    ['comments for ever', () => comments(), 504, 'provider_timeout'],
    [
      'an error event',
      () => streamOf('event: error\ndata: {"error":{"message":"full"}}\n\n'),
      502,
      'provider_error',
    ],
    [
      'an error member',
      () => streamOf(eventsOf([{ error: { message: 'full' } }])),
      502,
      'provider_error',
    ],
    ['no JSON', () => streamOf('data: {"choices\n\n'), 502, 'provider_error'],
    ['no object', () => streamOf('data: [1]\n\n'), 502, 'provider_error'],
    [
      'a chunk of the wrong form',
      () => streamOf(eventsOf([{ choices: [{ delta: 'a' }] }])),
      502,
      'provider_error',
    ],
    [
      'a delta of the wrong form',
      () => streamOf(eventsOf([{ choices: [{ delta: { tool_calls: {} } }] }])),
      502,
      'provider_error',
    ],
    ['[DONE] at once', () => streamOf('data: [DONE]\n\n'), 502, 'provider_error'],
    ['nothing', () => streamOf(), 502, 'provider_error'],
    ['usage alone', () => streamOf(eventsOf([usageChunk, '[DONE]'])), 502, 'provider_error'],
    [
      'a completion that is no stream',
      () => [send('HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"choices":[]}')],
      502,
      'provider_error',
    ],
    [
      'a lost connection',
      () => brokenStream(': hi\n\n', [{ kind: 'reset' }]),
      502,
      'provider_error',
    ],
    [
      'a redirect',
      () => [send('HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n')],
      502,
      'provider_error',
    ],
    [
      'too many bytes',
      () => [
        send(EVENT_STREAM_HEAD),
        { kind: 'repeat', bytes: chunked(`: ${'x'.repeat(65530)}\n`), times: 20 },
      ],
      502,
      'answer_too_large',
    ],
  ])(
    'a stream that fails before its first chunk gives a status and no record: %s',
    async (_, steps, status, code) => {
      script = steps
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
    ['by an early close', [{ kind: 'end' }], 'provider_error'],
    ['by a reset', [{ kind: 'reset' }], 'provider_error'],
    ['by an early end of the body', [send(chunked(''))], 'provider_error'],
    ['by a stall', [stall], 'provider_timeout'],
    ['by comments for ever', [...comments()].slice(1), 'provider_timeout'],
    ['by an event that is no JSON', [send(chunked('data: {"choices\n\n'))], 'provider_error'],
    [
      'by an event that is nested without end',
      [send(chunked(`data: {"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}\n\n`))],
      'provider_error',
    ],
    [
      'by an event cut at the end of the body',
      [send(chunked('data: {"choi')), send(chunked(''))],
      'provider_error',
    ],
    ['by a chunk of the wrong form', [send(chunked(eventsOf([{ choices: 1 }])))], 'provider_error'],
    [
      'by a tool call of the wrong form',
      [send(chunked(eventsOf([chunkOf({ content: 'X', tool_calls: [1] })])))],
      'provider_error',
    ],
    [
      'by an error',
      [send(chunked(eventsOf([{ error: { message: 'overloaded' } }])))],
      'provider_error',
    ],
    ['by an error event', [send(chunked('event: error\ndata: overloaded\n\n'))], 'provider_error'],
    [
      'by too many bytes',
      [{ kind: 'repeat', bytes: chunked(`:${'x'.repeat(65534)}\n`), times: 20 }],
      'answer_too_large',
    ],
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
    expect(taken.completion.choices).toEqual([
      {
        index: 0,
        message: expect.objectContaining({ content: 'Hel' }),
        logprobs: null,
        finish_reason: null,
      },
    ])
    const response = assembleCompletion(chunks as unknown as readonly JsonObject[])
    const { responseHash } = hashCompletion({ request: {}, response })
    expect(receiptOf(taken)).toMatchObject({
      outcome: 'upstream_error',
      response_hash: responseHash,
    })
  })

  it('a stream that breaks off passes on the good chunk in the packet of the bad one', async () => {
    script = () => streamOf(`${eventsOf([first, chunkOf({ content: 'Hel' })])}data: {\n\n`)
    const { chunks, sealed } = await enclave.stream(question)
    expect(chunks.map(({ choices }) => choices[0]?.delta.content)).toEqual(['', 'Hel'])
    expect(sealed?.outcome).toBe('upstream_error')
    expect(contentOf(await takeOne())).toBe('Hel')
  })

  it('a stream is not complete when a choice that was asked for never began', async () => {
    script = () => streamOf(eventsOf(whole.slice(0, -1)))
    expect((await enclave.stream({ ...question, n: 2 })).sealed?.outcome).toBe('upstream_error')
  })
})

describe('a stream that readers could take in two ways', () => {
  const choiceWith = (more: object) => ({ ...first, choices: [{ index: 0, delta: {}, ...more }] })
  const calling = (call: object) => chunkOf({ tool_calls: [{ index: 0, ...call }] })
  const text = chunkOf({ content: 'Transfer nothing. ' })

  it.each<[string, readonly object[], string]>([
    [
      'false between two texts',
      [text, chunkOf({ content: false }), chunkOf({ content: 'All.' })],
      'type',
    ],
    [
      'content parts after text',
      [text, chunkOf({ content: [{ type: 'text', text: 'x' }] })],
      'type',
    ],
    ['content that is a number', [text, chunkOf({ content: 7 })], 'type'],
    ['a refusal that is an object', [text, chunkOf({ refusal: {} })], 'type'],
    [
      'another name of a call',
      [
        calling({ id: 'a', function: { name: 'refund' } }),
        calling({ function: { name: 'charge' } }),
      ],
      'second id or name',
    ],
    [
      'arguments that become an object',
      [
        calling({ id: 'a', function: { name: 'f', arguments: '{' } }),
        calling({ function: { arguments: {} } }),
      ],
      'type',
    ],
    [
      'another finish_reason',
      [choiceWith({ finish_reason: 'stop' }), chunkOf({}, 'length')],
      'finish_reason',
    ],
    [
      'text after the end of its choice',
      [choiceWith({ finish_reason: 'stop' }), text],
      'wrong form',
    ],
    ['a call that never has a name', [calling({ id: 'a' })], 'wrong form'],
    [
      'arguments without end before a name',
      [calling({ function: { arguments: 'x'.repeat(65_537) } })],
      'wrong form',
    ],
    ['a finish_reason that says that it broke off', [chunkOf({}, 'abort')], 'wrong form'],
    [
      'a second choice that was not asked for',
      [{ ...first, choices: [{ index: 1, delta: { content: ' not' } }] }],
      'wrong form',
    ],
    ['a call of an index that no array has', [calling({ index: -1, id: 'a' })], 'wrong form'],
  ])(
    'a stream that readers could take in two ways is broken off: %s',
    async (_, chunks, message) => {
      script = () =>
        streamOf(eventsOf([first, text, ...chunks, chunkOf({}, 'stop'), usageChunk, '[DONE]']))
      const streamed = await enclave.stream(withUsage)
      expect(streamed.fault).toMatchObject({
        code: 'provider_error',
        message: expect.stringContaining(message),
      })
      expect(streamed.sealed?.outcome).toBe('upstream_error')
      const taken = await takeOne()
      const given = streamed.chunks as unknown as readonly JsonObject[]
      const { responseHash } = hashCompletion({ request: {}, response: assembleCompletion(given) })
      expect(receiptOf(taken)).toMatchObject({
        outcome: 'upstream_error',
        response_hash: responseHash,
        stream_hash: hashChunks(given),
      })
    },
  )

  it('a message that a chunk claims to be whole is dropped from the stream, as some readers show it', async () => {
    const claimed = choiceWith({
      message: { role: 'assistant', content: 'claimed' },
      finish_reason: 'stop',
    })
    script = () => streamOf(eventsOf([first, text, claimed, '[DONE]']))
    const { text: given, sealed } = await enclave.stream(question)
    expect(sealed?.outcome).toBe('complete')
    expect(given).not.toContain('claimed')
    expect((await takeOne()).response).not.toContain('claimed')
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
        version: 3,
        stream_hash: hashChunks(given),
        encrypted: false,
      })
    }
  })

  it('the chunk with the finish_reason is the last when no usage was asked for', async () => {
    const { chunks } = await enclave.stream(question)
    expect(chunks.at(-1)).toMatchObject({ choices: [{ finish_reason: 'stop' }], usage: null })
    for (const { choices } of chunks) expect(choices.length).toBeGreaterThan(0)
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

  it('a stream that ends with [DONE] and without a finish_reason is not complete', async () => {
    script = () => streamOf(eventsOf([first, chunkOf({ content: 'a' }), '[DONE]']))
    const { text, chunks, fault } = await enclave.stream(question)
    expect(namesOf(text)).toEqual(['chunk', 'chunk', 'fault', 'sealed'])
    expect(fault?.message).toContain('without a finish_reason')
    const taken = await takeOne()
    expect(contentOf(taken)).toBe('a')
    expect(receiptOf(taken)).toMatchObject({
      outcome: 'upstream_error',
      stream_hash: hashChunks(chunks as unknown as readonly JsonObject[]),
    })
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
  async function leaveAfter(text: string, then: readonly Step[]): Promise<void> {
    script = () => brokenStream(text, then)
    const call = enclave.open({ stream: true, ...question })
    call.on('error', () => undefined)
    await new Promise((resolve) =>
      call.once('response', (response) => response.once('data', resolve)),
    )
    const left = performance.now()
    call.destroy()
    await provider.requests.at(-1)?.closed
    expect(performance.now() - left).toBeLessThan(AT_ONCE_MS)
  }

  it('a gateway that leaves ends the provider’s request at once, and a record of what came stays', async () => {
    await leaveAfter(eventsOf([first, chunkOf({ content: 'Hel' })]), [stall])
    await sleep(20)
    const taken = await takeOne()
    expect(receiptOf(taken).outcome).toBe('client_disconnected')
    expect(taken.completion.choices).toEqual([
      {
        index: 0,
        message: expect.objectContaining({ content: 'Hel' }),
        logprobs: null,
        finish_reason: null,
      },
    ])
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
    const call = enclave.open({ stream: true, ...question }, { outlives_gateway: true })
    call.on('error', () => undefined)
    await new Promise((resolve) =>
      call.once('response', (response) => response.once('data', resolve)),
    )
    const closed = new Promise((resolve) => call.once('close', resolve))
    call.destroy()
    await closed
    go()
    await until('its record', async () => (await enclave.identity()).log.size === size + 1)
    const taken = await takeOne()
    expect(receiptOf(taken).outcome).toBe('complete')
    expect(contentOf(taken)).toHaveLength(500_000)
  })

  it('a gateway that leaves when everything had come leaves a complete record', async () => {
    await leaveAfter(eventsOf(whole), [stall])
    await sleep(20)
    expect(receiptOf(await takeOne()).outcome).toBe('complete')
  })

  it('a gateway that leaves before the first chunk leaves no record', async () => {
    script = () => brokenStream(': hi\n\n', [stall])
    const requests = provider.requests.length
    const call = enclave.open({ stream: true, ...question })
    call.on('error', () => undefined)
    while (provider.requests.length === requests) await sleep(5)
    call.destroy()
    await provider.requests.at(-1)?.closed
    await sleep(20)
    expect(await enclave.takeAll()).toEqual([])
  })
})

describe('a gateway that does not read', () => {
  const piece = eventsOf([chunkOf({ content: 'x'.repeat(1000) })])

  it('a gateway that does not read stops the reading of the provider, and in the end counts as gone', async () => {
    let sent = 0
    script = function* () {
      yield send(EVENT_STREAM_HEAD)
      for (; sent < 900; sent++) yield send(chunked(piece))
      yield stall
    }
    const call = enclave.open({ stream: true, ...question })
    call.on('error', () => undefined)
    const response = await new Promise<NodeJS.ReadableStream>((resolve) =>
      call.once('response', resolve),
    )
    response.pause()
    await provider.requests.at(-1)?.closed
    await sleep(20)
    const taken = await takeOne()
    expect(receiptOf(taken).outcome).toBe('client_disconnected')
    // Not everything was read: a slow reader holds no more than the buffers on the way.
    expect(contentOf(taken)?.length).toBeLessThan(850_000)
    call.destroy()
  })

  it('a gateway that reads again after more than the idle timeout gets everything', async () => {
    script = () =>
      streamOf(
        ...Array.from({ length: 700 }, () => piece),
        eventsOf([chunkOf({}, 'stop'), '[DONE]']),
      )
    const call = enclave.open({ stream: true, ...question })
    const response = await new Promise<import('node:http').IncomingMessage>((resolve) =>
      call.once('response', resolve),
    )
    response.pause()
    await sleep(400)
    const parts: Buffer[] = []
    for await (const part of response) parts.push(part)
    expect(Buffer.concat(parts).toString()).toContain('"outcome":"complete"')
    expect(contentOf(await takeOne())).toHaveLength(700_000)
  })
})

function writeEvent(event: unknown): string {
  return typeof event === 'string' ? event : JSON.stringify(event)
}

/** The same event in white space of its own, so that it is like no other. */
function spaced(event: unknown, at: number): string {
  return writeEvent(event).replace(/^\{/, `{${' '.repeat(at)}`)
}
