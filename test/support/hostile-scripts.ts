import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import {
  chunked,
  chunkOf,
  completionOf,
  EVENT_STREAM_HEAD,
  eventsOf,
  openHead,
  send,
  wholeAnswer,
} from './hostile-answers.ts'
import type { Step } from './hostile-provider.ts'

const STALL: Step = { kind: 'stall' }
const END: Step = { kind: 'end' }
const MEBIBYTE = 2 ** 20

/** Chunks of a small, finished stream with the text `héllo 🙂`. */
export const GREETING_CHUNKS: readonly object[] = [
  chunkOf({ role: 'assistant', content: '' }),
  chunkOf({ content: 'héllo' }),
  chunkOf({ content: ' 🙂' }),
  chunkOf({}, 'stop'),
]
const CHAT_GREETING = eventsOf([...GREETING_CHUNKS, '[DONE]'])
export const stream = (text: string): readonly Step[] => [
  send(openHead('text/event-stream')),
  send(text),
  END,
]
export const whole = (value: object | string): readonly Step[] => [
  send(wholeAnswer({ body: typeof value === 'string' ? value : JSON.stringify(value) })),
]

/** Text that JSON can hold and that breaks careless programs. Lone surrogates become U+FFFD. */
export const ODD_TEXT = {
  sent: '\u0000 \u2028 𝒜 🏳️‍🌈 \ufeff \ud800 x \udc00',
  kept: '\u0000 \u2028 𝒜 🏳️‍🌈 \ufeff \ufffd x \ufffd',
}

const oddLogprobs =
  '{"content":[{"token":"a","bytes":[97],"logprob":-0.0,"top_logprobs":[{"token":"a","bytes":null,"logprob":1.0},' +
  '{"token":"b","bytes":[],"logprob":-1e-7},{"token":"c","bytes":[],"logprob":-9999.0},' +
  '{"token":"d","bytes":[],"logprob":1E400}]}],"refusal":null}'

/** Answers that end well, whole or streamed, by name, with their content. */
export type GoodScripts = Readonly<
  Record<string, { readonly steps: readonly Step[]; readonly content: string }>
>

/** A finished stream with the content `héllo 🙂`, in every form that a stream can have. */
export function goodStreams(greeting: string): GoodScripts {
  const texts = {
    lf: greeting,
    crlf: greeting.replaceAll('\n', '\r\n'),
    cr: greeting.replaceAll('\n', '\r'),
    'no-final-blank-line': greeting.trimEnd(),
    'comments-and-unknown-fields': `: hello\n\nid: 7\nretry: 1\nfoo\n${greeting.replaceAll('data: ', ': x\ndata:')}`,
    'data-over-many-lines': greeting.replaceAll(',"', '\ndata: ,"'),
  }
  const bytes = Array.from(Buffer.from(texts.crlf), (byte) => send(chunked(Uint8Array.of(byte))))
  const scripts = Object.entries(texts).map(([name, text]) => [name, stream(text)] as const)
  const single = [send(EVENT_STREAM_HEAD), ...bytes, send(chunked(''))]
  return Object.fromEntries(
    [...scripts, ['byte-by-byte', single] as const].map(([name, steps]) => [
      `stream/${name}`,
      { steps, content: 'héllo 🙂' },
    ]),
  )
}

/** Answers of a chat that end in a completion. */
const CHAT_GOOD: GoodScripts = {
  ...goodStreams(CHAT_GREETING),
  'stream/no-done': { steps: stream(eventsOf(GREETING_CHUNKS)), content: 'héllo 🙂' },
  'stream/odd-text': {
    steps: stream(eventsOf([chunkOf({ content: ODD_TEXT.sent }), chunkOf({}, 'stop'), '[DONE]'])),
    content: ODD_TEXT.kept,
  },
  'stream/odd-floats': {
    steps: stream(
      eventsOf([chunkOf({ content: 'a' }), chunkOf({}, 'stop'), '[DONE]']).replace(
        '"logprobs":null',
        `"logprobs":${oddLogprobs}`,
      ),
    ),
    content: 'a',
  },
  'stream/forged-proof': {
    steps: stream(
      eventsOf([
        { ...chunkOf({ content: 'a' }), hash: 'forged', receipt: {} },
        chunkOf({}, 'stop'),
        '[DONE]',
      ]),
    ),
    content: 'a',
  },
  'whole/odd-text': { steps: whole(completionOf(ODD_TEXT.sent)), content: ODD_TEXT.kept },
  'whole/odd-floats': {
    steps: whole(
      JSON.stringify(completionOf('a')).replace('"logprobs":null', `"logprobs":${oddLogprobs}`),
    ),
    content: 'a',
  },
  'whole/forged-proof': {
    steps: whole(completionOf('a', { hash: 'forged', signature: '0x', log: {}, attestation: '' })),
    content: 'a',
  },
  'whole/unknown-members': {
    steps: whole(completionOf('a', { __proto__x: 1, constructor: { name: 'x' } })),
    content: 'a',
  },
  'whole/large': {
    steps: whole(completionOf('x'.repeat(8 * MEBIBYTE))),
    content: 'x'.repeat(8 * MEBIBYTE),
  },
}

/** How an answer fails: the status and code that a caller gets, and whether a record is stored. */
export type BadScript = {
  readonly steps: readonly Step[]
  readonly status: number
  readonly code: string
}

const redirect = 'HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n'
const error = {
  error: { message: 'the provider is out of models', type: 'server_error', code: 'oops' },
}

/** Answers to a request without streaming that end badly. `good` is an answer that ends well. */
export function badAnswers(good: object): Readonly<Record<string, BadScript>> {
  const text = JSON.stringify(good)
  return {
    redirect: { steps: [send(redirect)], status: 502, code: 'provider_error' },
    'error-with-200': { steps: whole(error), status: 502, code: 'provider_error' },
    'no-json': { steps: whole('<html>it works</html>'), status: 502, code: 'provider_error' },
    'no-completion': {
      steps: whole({ object: 'list', data: [] }),
      status: 502,
      code: 'provider_error',
    },
    'cut-json': {
      steps: whole(text.slice(0, -2)),
      status: 502,
      code: 'provider_error',
    },
    'no-http': {
      steps: [send('SSH-2.0-OpenSSH_9.9\r\n\r\n'), END],
      status: 502,
      code: 'provider_error',
    },
    'server-error': {
      steps: [send(wholeAnswer({ status: 500, body: JSON.stringify(error) }))],
      status: 502,
      code: 'provider_error',
    },
    'closed-at-once': { steps: [END], status: 502, code: 'provider_error' },
    'reset-at-once': { steps: [{ kind: 'reset' }], status: 502, code: 'provider_error' },
    'closed-early': {
      steps: [send(wholeAnswer({ body: text }).slice(0, -20)), END],
      status: 502,
      code: 'provider_error',
    },
    'stalled-at-once': { steps: [STALL], status: 504, code: 'provider_timeout' },
    'stalled-midway': {
      steps: [send(wholeAnswer({ body: text }).slice(0, -20)), STALL],
      status: 504,
      code: 'provider_timeout',
    },
    'too-large': {
      steps: [
        send(openHead('application/json')),
        send('{"choices":"'),
        { kind: 'repeat', bytes: Buffer.alloc(MEBIBYTE, 'x'), times: 32 },
        END,
      ],
      status: 502,
      code: 'answer_too_large',
    },
    'endless-headers': {
      steps: [
        send('HTTP/1.1 200 OK\r\nx: '),
        { kind: 'repeat', bytes: Buffer.alloc(MEBIBYTE, 'x'), times: 8 },
        STALL,
      ],
      status: 502,
      code: 'provider_error',
    },
  }
}

/** The texts of a dialect's events. */
export type EventTexts = {
  /** A finished stream with the content `héllo 🙂`. */
  readonly greeting: string
  /** Its first events, with `héllo`. */
  readonly begun: string
  readonly error: string
  /** An event that goes on with more content. */
  piece(content: string): string
}

/** Streams that begin well, with `héllo`, and then break off. */
export function brokenStreams({
  greeting,
  begun,
  error,
  piece,
}: EventTexts): Readonly<Record<string, readonly Step[]>> {
  return {
    'invalid-json': stream(`${begun}data: {"choices": [}\n\n${greeting}`),
    'no-object': stream(`${begun}data: 7\n\n${greeting}`),
    'error-event': stream(`${begun}${error}`),
    'closed-early': stream(begun),
    'closed-in-a-character': [
      send(openHead('text/event-stream')),
      send(Buffer.concat([Buffer.from(begun), Buffer.from(piece('🙂')).subarray(0, -25)])),
      END,
    ],
    reset: [
      send(openHead('text/event-stream')),
      send(begun),
      { kind: 'pause', durationMs: 50 },
      { kind: 'reset' },
    ],
    stalled: [send(openHead('text/event-stream')), send(begun), STALL],
    'comments-for-ever': [
      send(openHead('text/event-stream')),
      send(begun),
      ...Array.from({ length: 60 }, (): Step[] => [
        send(': ping\n\n'),
        { kind: 'pause', durationMs: 100 },
      ]).flat(),
    ],
    'too-large': [
      send(openHead('text/event-stream')),
      send(begun),
      {
        kind: 'repeat',
        bytes: Buffer.from(piece('x'.repeat(MEBIBYTE))),
        times: 32,
      },
      END,
    ],
    'endless-event': [
      send(openHead('text/event-stream')),
      send(`${begun}data: `),
      { kind: 'repeat', bytes: Buffer.alloc(MEBIBYTE, 'x'), times: 32 },
      END,
    ],
  }
}

/** The scripts of one dialect. */
export type HostileDialect = {
  readonly path: string
  /** The body of a call beside its model. */
  readonly body: JsonObject
  /** Members that a stream is asked with. */
  readonly streamed: JsonObject
  readonly good: GoodScripts
  readonly bad: Readonly<Record<string, BadScript>>
  readonly broken: Readonly<Record<string, readonly Step[]>>
  /** The content of an answer, whole or assembled. */
  contentOf(answer: JsonObject): Json
}

export const HOSTILE_CHAT: HostileDialect = {
  path: '/v1/verified/chat/completions',
  body: { messages: [{ role: 'user', content: 'hi' }] },
  streamed: { stream: true, stream_options: { include_usage: true } },
  good: CHAT_GOOD,
  bad: badAnswers(completionOf('abc')),
  broken: brokenStreams({
    greeting: CHAT_GREETING,
    begun: eventsOf(GREETING_CHUNKS.slice(0, 2)),
    error: eventsOf([error]),
    piece: (content) => eventsOf([chunkOf({ content })]),
  }),
  contentOf: (answer) => valueAt(answer, 'choices', 0, 'message', 'content') ?? null,
}

/** The value at a path of members and positions. Undefined without a value there. */
export function valueAt(value: Json, ...path: readonly (string | number)[]): Json | undefined {
  return path.reduce<Json | undefined>((inner, at) => {
    if (inner !== undefined && isJsonArray(inner)) return inner[Number(at)]
    return inner !== undefined && isJsonObject(inner) ? inner[at] : undefined
  }, value)
}
