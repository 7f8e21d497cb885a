import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { messagesStream } from '../../attestation/dialects/messages-streams.ts'
import { responsesStream } from '../../attestation/dialects/responses-streams.ts'
import { chunked, EVENT_STREAM_HEAD, send, wholeAnswer } from '../../support/hostile-answers.ts'
import type { Step } from '../../support/hostile-provider.ts'
import {
  type DialectStage,
  EVENT_NAMES,
  type EventName,
  type Outcome,
  QUESTIONS,
  STREAMS,
  startDialectStage,
  stepsOf,
  streamText,
  textOf,
} from '../support/dialect-stage.ts'

const ANSWER_BYTES_MAX = 2 ** 18

let stage: DialectStage

beforeAll(async () => {
  stage = await startDialectStage({
    firstByteTimeoutMs: 1_000,
    idleTimeoutMs: 1_000,
    drainTimeoutMs: 500,
    answerBytesMax: ANSWER_BYTES_MAX,
  })
})
afterAll(() => stage.stop())

/** Events, and text that a provider sends among them. */
type Sent = readonly (JsonObject | string)[]
type Cases = Readonly<Record<string, Sent>>

const STALL: Step = { kind: 'stall' }
const { responses: RESPONSES, messages: MESSAGES } = STREAMS

/** The stream with other events in the place of the first whose JSON has all these texts. */
function change(
  name: EventName,
  marks: string | readonly string[],
  edit: (event: JsonObject) => Sent,
): Sent {
  const events = STREAMS[name]
  const at = events.findIndex((event) =>
    [marks].flat().every((mark) => JSON.stringify(event).includes(mark)),
  )
  if (at < 0) throw new Error(`expected an event with ${marks}`)
  return [...events.slice(0, at), ...edit(events[at] as JsonObject), ...events.slice(at + 1)]
}

/** As `change`, with a text in the event's JSON replaced. */
function rewrite(
  name: EventName,
  marks: string | readonly string[],
  [from, to]: readonly [string, string],
): Sent {
  return change(name, marks, (event) => {
    const text = JSON.stringify(event)
    if (!text.includes(from)) throw new Error(`expected ${from} in ${text}`)
    return [JSON.parse(text.replaceAll(from, to)) as JsonObject]
  })
}

/** A stream with one call, whose name shows that its end was given out. */
function callOf(text: string): Sent {
  const events = responsesStream([{ kind: 'call', id: 'fc_1', pieces: [text] }])
  return events.map((event) =>
    String(event.type).endsWith('.done') ? { ...event, note: 'EVIL' } : event,
  )
}

const DONE = 'response.output_item.done'
const textDelta = (output_index: number): JsonObject => ({
  type: 'response.output_text.delta',
  output_index,
  item_id: 'msg_1',
  content_index: 0,
  delta: 'EVIL',
})
const blockDelta = (index: number): JsonObject => ({
  type: 'content_block_delta',
  index,
  delta: { type: 'text_delta', text: 'EVIL' },
})

/** One of each kind of what the readers of the dialects refuse: their own tests have the rest. */
const REFUSED: Readonly<Record<EventName, Cases>> = {
  responses: {
    'an item that differs from its deltas': rewrite(
      'responses',
      [DONE, 'Hello'],
      ['Hello', 'EVIL'],
    ),
    'arguments with one member twice': callOf('{"path":"a.txt","path":"b.txt"}'),
    'an id of an item that is longer than any': JSON.parse(
      JSON.stringify(RESPONSES).replaceAll('"msg_1"', `"EVIL${'x'.repeat(2_000)}"`),
    ),
  },
  messages: {
    'the name of a ping on a text': change('messages', '"Hel"', () => [
      textOf(blockDelta(1), 'ping'),
    ]),
    'an input of a tool with one member twice': rewrite('messages', 'a.txt', [
      '\\"a.txt\\"',
      '\\"a.txt\\",\\"path\\":\\"b.txt\\"',
    ]),
    'usage that falls': rewrite('messages', 'message_delta', [
      '"output_tokens":20',
      '"output_tokens":0',
    ]),
  },
}

/** Events that every reader assembles alike after the enclave has settled them. */
const SETTLED: Readonly<Record<EventName, Cases>> = {
  responses: {
    'a text after the last event': [...RESPONSES, textDelta(1)],
    'no sequence numbers': RESPONSES.map(({ sequence_number: _, ...event }) => event),
    'keep-alives': RESPONSES.flatMap((event) => [
      { type: 'keepalive' },
      ': EVIL\n\n',
      'data: {"type":"ping"}\n\n',
      event,
    ]),
    'a proof of the provider': RESPONSES.map((event) => ({
      ...event,
      affidavit: 'EVIL',
      ...('response' in event
        ? { response: { ...(event.response as JsonObject), affidavit: 'EVIL' } }
        : {}),
    })),
  },
  messages: {
    'a text after message_stop': [...MESSAGES, blockDelta(1)],
    'keep-alives': MESSAGES.flatMap((event) => [{ type: 'ping' }, ': EVIL\n\n', event]),
    'a proof of the provider': MESSAGES.map((event) => ({
      ...event,
      affidavit: 'EVIL',
      ...('message' in event
        ? { message: { ...(event.message as JsonObject), affidavit: 'EVIL' } }
        : {}),
      ...(event.type === 'message_delta'
        ? { delta: { ...(event.delta as JsonObject), affidavit: 'EVIL' } }
        : {}),
    })),
  },
}

/** What is alike in both dialects. */
const SETTLED_IN_BOTH: Readonly<Record<string, (events: readonly JsonObject[]) => string>> = {
  'no names of events': (events) => events.map((event) => textOf(event, '')).join(''),
  '[DONE] amid the stream': (events) => streamText(events).replace('\n\n', '\n\ndata: [DONE]\n\n'),
  'unknown events': (events) =>
    events.map((event) => `${textOf({ type: 'x.y', text: 'EVIL' })}${textOf(event)}`).join(''),
  'an error after the end': (events) =>
    `${streamText(events)}${textOf({ type: 'error', error: { message: 'EVIL' } })}`,
  'data over several lines': (events) => streamText(events).replaceAll(',"', ',\ndata: "'),
}

/** What ends a stream after its first events, in both dialects. */
const BROKEN: Readonly<Record<string, string>> = {
  'no JSON': 'data: {"type":"ping",}\n\n',
  'an error event': textOf({
    type: 'error',
    code: 'x',
    error: { type: 'overloaded_error', message: 'too busy' },
  }),
  'an error by its name alone': 'event: error\ndata: {"message":"too busy"}\n\n',
  'JSON that is too deep': `data: {"type":"ping","x":${'['.repeat(200)}${']'.repeat(200)}}\n\n`,
}

/** Errors that a provider states in a stream, each with the status that it means. */
const STATED: Readonly<Record<string, readonly [string, number, object]>> = {
  // https://github.com/unslothai/unsloth/issues/10938
  'a prompt that is too long': [
    textOf({ type: 'error', code: 'context_length_exceeded', message: 'too long', param: 'input' }),
    400,
    { provider_code: 'context_length_exceeded', provider_param: 'input', in_stream: true },
  ],
  // https://github.com/anthropics/claude-code/issues/2919
  'a busy provider': [
    textOf({ type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }),
    502,
    { provider_status: 529, provider_type: 'overloaded_error' },
  ],
  // https://github.com/sgl-project/sglang/issues/12081
  'a status as its code': [
    'data: {"error":{"message":"m","type":"BadRequestError","code":400}}\n\n',
    400,
    { provider_status: 400, provider_type: 'BadRequestError' },
  ],
  // https://github.com/lemonade-sdk/lemonade/issues/2826
  'an error without the form of an event': [
    '{"error":{"message":"m","code":400}}',
    400,
    { provider_status: 400 },
  ],
  'an error line of llama.cpp': ['error: {"message":"m","code":400}\n\n', 400, { in_stream: true }],
}

const readable = ({ given }: Outcome) => given.map(({ data }) => data)
const givenOf = (name: EventName) => STREAMS[name].filter(({ type }) => type !== 'ping')

const isHeld = ({ type, delta }: JsonObject) =>
  type === 'message_delta' || (delta as JsonObject | undefined)?.type === 'signature_delta'

for (const name of EVENT_NAMES)
  describe(`a stream of ${name} in the enclave`, () => {
    const genuine = givenOf(name)
    const text = streamText(STREAMS[name])
    const play = (...steps: readonly Step[]) => stage.play(name, steps)
    const playText = (...packets: readonly (string | Uint8Array)[]) =>
      stage.play(name, stepsOf(...packets))

    it(`a genuine stream of ${name} is complete, and its record covers it`, async () => {
      const outcome = await playText(text)
      expect(outcome.outcome).toBe('complete')
      expect(readable(outcome)).toEqual(genuine)
    })

    it.each(Object.entries(REFUSED[name]))(
      `the enclave ends a stream of ${name} that readers read differently: %s`,
      async (_, events) => {
        const outcome = await playText(streamText(events))
        expect(outcome.fault).toMatchObject({
          code: 'provider_error',
          message: expect.stringMatching(
            /of hostile \(model hostile\) alike: .+ It sent: \{.{1,199}$/,
          ),
          refused_reason: expect.stringMatching(/^[a-z_]+$/),
        })
        expect(outcome.outcome).not.toBe('complete')
        expect(outcome.text.replace(/event: fault\n.*/, '')).not.toContain('EVIL')
      },
    )

    it.each([
      ...Object.entries(SETTLED[name]).map(([what, sent]) => [what, streamText(sent)] as const),
      ...Object.entries(SETTLED_IN_BOTH).map(
        ([what, textFor]) => [what, textFor(STREAMS[name])] as const,
      ),
    ])(`the enclave settles a stream of ${name} with %s`, async (_, sent) => {
      const outcome = await playText(sent)
      expect(outcome.fault).toBeNull()
      expect(readable(outcome)).toEqual(genuine)
      expect(outcome.text).not.toContain('EVIL')
    })

    it.each(Object.entries(BROKEN))(
      `a stream of ${name} that breaks off with %s is sealed as far as it came`,
      async (what, broken) => {
        const whole = STREAMS[name]
        const outcome = await playText(streamText(whole.slice(0, -2)) + broken + text)
        expect(outcome.fault?.code).toBe('provider_error')
        if (what.includes('error')) expect(outcome.fault?.message).toContain('too busy')
        expect(outcome.outcome).toBe('upstream_error')
        expect(readable(outcome)).toEqual(genuine.slice(0, -2))
      },
    )

    it.each(['no JSON', 'an error event', 'JSON that is too deep'])(
      `a stream of ${name} that begins with %s leaves no record`,
      async (what) => {
        const { status, fault, outcome } = await playText(BROKEN[what] + text)
        expect(status).toBe(502)
        expect(fault?.code).toBe('provider_error')
        expect(outcome).toBeNull()
      },
    )

    it.each(Object.entries(STATED))(
      `a stream of ${name} that begins with %s tells the caller's status`,
      async (_, [sent, status, facts]) => {
        const { fault, outcome, ...answer } = await playText(sent)
        expect(answer.status).toBe(status)
        expect(fault).toMatchObject(facts)
        expect(outcome).toBeNull()
      },
    )

    it(`a stream of ${name} that is cut anywhere is sealed as far as it came`, async () => {
      for (let length = 1; length < genuine.length; length += 4) {
        const outcome = await playText(streamText(genuine.slice(0, length)))
        expect(outcome).toMatchObject({ outcome: 'upstream_error', status: 200 })
        // A signature and a stop reason are held until the event after them.
        const given = genuine
          .slice(0, length)
          .filter((event, at) => !(at === length - 1 && isHeld(event)))
        expect(readable(outcome)).toEqual(given)
      }
      expect(await playText('')).toMatchObject({ status: 502, outcome: null })
    })

    it.each([
      ['closed', [{ kind: 'end' }]],
      ['reset', [{ kind: 'pause', durationMs: 20 }, { kind: 'reset' }]],
      ['stalled', [STALL]],
    ] as const)(
      `a stream of ${name} that is %s amid its last event is sealed without this event`,
      async (how, steps) => {
        const cut = send(chunked(text.slice(0, -20)))
        const outcome = await play(send(EVENT_STREAM_HEAD), cut, ...steps)
        expect(outcome.outcome).toBe('upstream_error')
        expect(outcome.fault?.code).toBe(how === 'stalled' ? 'provider_timeout' : 'provider_error')
        const given = genuine.slice(0, -1).filter((event) => event.type !== 'message_delta')
        expect(readable(outcome)).toEqual(given)
      },
    )

    it(`a provider of ${name} that stalls after its last event leaves a complete record`, async () => {
      const outcome = await play(send(EVENT_STREAM_HEAD), send(chunked(text)), STALL)
      expect(outcome.outcome).toBe('complete')
    })

    it(`a stream of ${name} is the same however its bytes are split`, async () => {
      const bytes = Buffer.from(text.replaceAll('look', 'l\u00f6\u{1d49c}k'))
      const whole = await playText(bytes)
      for (const size of [7, 64]) {
        const packets = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
          bytes.subarray(at * size, (at + 1) * size),
        )
        expect(readable(await playText(...packets))).toEqual(readable(whole))
      }
    })

    const oddities: Readonly<Record<string, readonly [string | Uint8Array, string]>> = {
      'lone surrogates': ['\\ud800 x \\udc00', '\ufffd x \ufffd'],
      'bytes that are not UTF-8': [Buffer.from([0x61, 0xff, 0x62]), 'a\ufffdb'],
      'characters that end lines elsewhere': ['\u2028\u0085\\u0000', '\u2028\u0085\u0000'],
    }
    it.each(Object.entries(oddities))(
      `a text of ${name} with %s is given as it is hashed`,
      async (_, [sent, kept]) => {
        const [head = '', ...rest] = streamText(oneText(name, 'MARK')).split('MARK')
        const parts = rest.flatMap((part) => [Buffer.from(sent), Buffer.from(part)])
        const outcome = await playText(Buffer.concat([Buffer.from(head), ...parts]))
        expect(outcome.outcome).toBe('complete')
        expect(readable(outcome)).toEqual(oneText(name, kept).filter(({ type }) => type !== 'ping'))
      },
    )

    it(`an event of ${name} that is too large ends the stream`, async () => {
      const head = streamText(genuine.slice(0, -2))
      for (const end of ['', '\n\n']) {
        const outcome = await playText(
          `${head}data: {"type":"${'x'.repeat(ANSWER_BYTES_MAX)}"}${end}`,
        )
        expect(outcome.fault?.code).toBe('answer_too_large')
        expect(outcome.outcome).toBe('upstream_error')
        expect(readable(outcome)).toEqual(genuine.slice(0, -2))
      }
    })
  })

/** A stream with one text. */
function oneText(name: EventName, text: string): readonly JsonObject[] {
  return name === 'responses'
    ? responsesStream([{ kind: 'message', id: 'msg_1', pieces: [text] }])
    : messagesStream([{ kind: 'text', pieces: [text] }])
}

const WHOLE: Readonly<Record<EventName, JsonObject>> = {
  responses: RESPONSES.at(-1)?.response as JsonObject,
  messages: {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content: [{ type: 'text', text: 'Hello' }],
    stop_reason: 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 2 },
  },
}

for (const name of EVENT_NAMES)
  describe(`a whole answer of ${name} in the enclave`, () => {
    const { stream: _, ...question } = QUESTIONS[name]
    const answer = (body: string | object, status = 200) => {
      const text = typeof body === 'string' ? body : JSON.stringify(body)
      return stage.play(name, [send(wholeAnswer({ body: text, status }))], question)
    }

    it(`a whole answer of ${name} is sealed without a proof of the provider`, async () => {
      const odd = { ...WHOLE[name], affidavit: { hash: 'EVIL' } }
      const outcome = await answer(odd)
      expect(outcome.response).toEqual(WHOLE[name])
    })

    it.each([
      ['an error with status 200', { error: { message: 'too busy', type: 'x' } }],
      ['a list', [WHOLE[name]]],
      ['an answer of another dialect', WHOLE[name === 'messages' ? 'responses' : 'messages']],
      ['a chat completion', { object: 'chat.completion', choices: [] }],
      ['JSON that is too deep', `{"x":${'['.repeat(200)}${']'.repeat(200)}}`],
    ])(`a whole answer of ${name} that is %s leaves no record`, async (what, body) => {
      const { status, fault, outcome } = await answer(body)
      expect(status).toBe(502)
      expect(fault?.code).toBe('provider_error')
      expect(outcome).toBeNull()
      if (what.includes('error')) expect(fault?.message).toContain('too busy')
    })
  })

describe('what only one dialect has', () => {
  const userMessage = { id: 'm', type: 'message', role: 'user', content: [] }
  it.each([
    ['responses', 'an error beside its text', { error: { code: 'x', message: 'out of memory' } }],
    ['responses', 'a message of another role', { output: [userMessage] }],
    ['messages', 'no content', { content: null }],
  ] as const)('a whole answer of %s with %s leaves no record', async (name, _, change) => {
    const { stream: __, ...question } = QUESTIONS[name]
    const body = JSON.stringify({ ...WHOLE[name], ...change })
    const { fault, outcome } = await stage.play(name, [send(wholeAnswer({ body }))], question)
    expect(fault?.code).toBe('provider_error')
    expect(outcome).toBeNull()
  })

  it('a failed response is a complete answer, with the items as far as they came', async () => {
    const failed = {
      ...(RESPONSES[0]?.response as JsonObject),
      status: 'failed',
      error: { code: 'server_error', message: 'out of memory' },
    }
    const events = [...RESPONSES.slice(0, 11), { type: 'response.failed', response: failed }]
    const outcome = await stage.play('responses', stepsOf(streamText(events)))
    expect(outcome.outcome).toBe('complete')
    expect(outcome.response).toMatchObject({
      status: 'failed',
      output: [{ id: 'rs_1' }, { id: 'msg_1', status: 'incomplete' }],
    })
  })
})
