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
const greeting = (lineBreak: '\n' | '\r\n' | '\r') =>
  eventsOf([...GREETING_CHUNKS, '[DONE]'], lineBreak)
const stream = (text: string): readonly Step[] => [
  send(openHead('text/event-stream')),
  send(text),
  END,
]
const whole = (value: object | string): readonly Step[] => [
  send(wholeAnswer({ body: typeof value === 'string' ? value : JSON.stringify(value) })),
]
const firstEvents = eventsOf(GREETING_CHUNKS.slice(0, 2))

/** Text that JSON can hold and that breaks careless programs. Lone surrogates become U+FFFD. */
export const ODD_TEXT = {
  sent: '\u0000 \u2028 𝒜 🏳️‍🌈 \ufeff \ud800 x \udc00',
  kept: '\u0000 \u2028 𝒜 🏳️‍🌈 \ufeff \ufffd x \ufffd',
}

const oddLogprobs =
  '{"content":[{"token":"a","bytes":[97],"logprob":-0.0,"top_logprobs":[{"token":"a","bytes":null,"logprob":1.0},' +
  '{"token":"b","bytes":[],"logprob":-1e-7},{"token":"c","bytes":[],"logprob":-9999.0},' +
  '{"token":"d","bytes":[],"logprob":1E400}]}],"refusal":null}'

/** Answers that end in a completion, whole or streamed, by name, with their content. */
export const GOOD_SCRIPTS: Readonly<
  Record<string, { readonly steps: readonly Step[]; readonly content: string }>
> = {
  'stream/lf': { steps: stream(greeting('\n')), content: 'héllo 🙂' },
  'stream/crlf': { steps: stream(greeting('\r\n')), content: 'héllo 🙂' },
  'stream/cr': { steps: stream(greeting('\r')), content: 'héllo 🙂' },
  'stream/byte-by-byte': {
    steps: [
      send(EVENT_STREAM_HEAD),
      ...Array.from(Buffer.from(greeting('\r\n')), (byte) => send(chunked(Uint8Array.of(byte)))),
      send(chunked('')),
    ],
    content: 'héllo 🙂',
  },
  'stream/no-final-blank-line': { steps: stream(greeting('\n').trimEnd()), content: 'héllo 🙂' },
  'stream/no-done': { steps: stream(eventsOf(GREETING_CHUNKS)), content: 'héllo 🙂' },
  'stream/comments-and-unknown-fields': {
    steps: stream(
      `: hello\n\nid: 7\nretry: 1\nfoo\n${greeting('\n').replaceAll('data: ', ': x\ndata:')}`,
    ),
    content: 'héllo 🙂',
  },
  'stream/data-over-many-lines': {
    steps: stream(greeting('\n').replaceAll(',"choices"', '\ndata: ,"choices"')),
    content: 'héllo 🙂',
  },
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

/** Answers to a request without streaming that do not end in a completion. */
export const BAD_ANSWERS: Readonly<Record<string, BadScript>> = {
  redirect: { steps: [send(redirect)], status: 502, code: 'provider_error' },
  'error-with-200': { steps: whole(error), status: 502, code: 'provider_error' },
  'no-json': { steps: whole('<html>it works</html>'), status: 502, code: 'provider_error' },
  'no-completion': {
    steps: whole({ object: 'list', data: [] }),
    status: 502,
    code: 'provider_error',
  },
  'cut-json': {
    steps: whole(JSON.stringify(completionOf('a')).slice(0, -2)),
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
    steps: [send(wholeAnswer({ body: JSON.stringify(completionOf('abc')) }).slice(0, -20)), END],
    status: 502,
    code: 'provider_error',
  },
  'stalled-at-once': { steps: [STALL], status: 504, code: 'provider_timeout' },
  'stalled-midway': {
    steps: [send(wholeAnswer({ body: JSON.stringify(completionOf('abc')) }).slice(0, -20)), STALL],
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

/** Streams that begin well, with `héllo`, and then break off. */
export const BROKEN_STREAMS: Readonly<Record<string, readonly Step[]>> = {
  'invalid-json': stream(`${firstEvents}data: {"choices": [}\n\n${greeting('\n')}`),
  'no-object': stream(`${firstEvents}data: 7\n\n${greeting('\n')}`),
  'error-event': stream(`${firstEvents}${eventsOf([error])}`),
  'closed-early': stream(firstEvents),
  'closed-in-a-character': [
    send(openHead('text/event-stream')),
    send(
      Buffer.concat([
        Buffer.from(firstEvents),
        Buffer.from(eventsOf([chunkOf({ content: '🙂' })])).subarray(0, -25),
      ]),
    ),
    END,
  ],
  reset: [
    send(openHead('text/event-stream')),
    send(firstEvents),
    { kind: 'pause', durationMs: 50 },
    { kind: 'reset' },
  ],
  stalled: [send(openHead('text/event-stream')), send(firstEvents), STALL],
  'comments-for-ever': [
    send(openHead('text/event-stream')),
    send(firstEvents),
    ...Array.from({ length: 60 }, (): Step[] => [
      send(': ping\n\n'),
      { kind: 'pause', durationMs: 100 },
    ]).flat(),
  ],
  'too-large': [
    send(openHead('text/event-stream')),
    send(firstEvents),
    {
      kind: 'repeat',
      bytes: Buffer.from(eventsOf([chunkOf({ content: 'x'.repeat(MEBIBYTE) })])),
      times: 32,
    },
    END,
  ],
  'endless-event': [
    send(openHead('text/event-stream')),
    send(`${firstEvents}data: `),
    { kind: 'repeat', bytes: Buffer.alloc(MEBIBYTE, 'x'), times: 32 },
    END,
  ],
}
