import type { Step } from './hostile-provider.ts'

/** Gives a step that sends text (UTF-8) or bytes. */
export function send(data: string | Uint8Array): Step {
  return { kind: 'bytes', bytes: typeof data === 'string' ? Buffer.from(data) : data }
}

/** Gives the bytes of a whole HTTP/1.1 answer with a content-length. */
export function wholeAnswer(options: {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly body: string | Uint8Array
}): Uint8Array {
  const body = Buffer.from(options.body)
  const headers = {
    'content-type': 'application/json',
    ...options.headers,
    'content-length': String(body.length),
  }
  return Buffer.concat([head(options.status ?? 200, headers), body])
}

/** Gives the head of an answer whose body has no length and ends with the connection. */
export function openHead(contentType: string, status = 200): Uint8Array {
  return head(status, { 'content-type': contentType, connection: 'close' })
}

/** Gives the head of a chunked stream of events; `chunked` makes its parts. */
export const EVENT_STREAM_HEAD: Uint8Array = head(200, {
  'content-type': 'text/event-stream',
  'transfer-encoding': 'chunked',
})

/** Gives one chunk of a chunked body; an empty one is the last chunk. */
export function chunked(data: string | Uint8Array): Uint8Array {
  const bytes = Buffer.from(data)
  return Buffer.concat([
    Buffer.from(`${bytes.length.toString(16)}\r\n`),
    bytes,
    Buffer.from('\r\n'),
  ])
}

/** Gives the bytes cut in two, once for every position. */
export function* splitEverywhere(
  bytes: Uint8Array,
): Generator<readonly [Uint8Array, Uint8Array], void> {
  for (let position = 1; position < bytes.length; position += 1)
    yield [bytes.subarray(0, position), bytes.subarray(position)]
}

/** Gives a `chat.completion` whose one choice says `content`; `more` replaces members. */
export function completionOf(
  content: string | null,
  more: Readonly<Record<string, unknown>> = {},
): object {
  return {
    id: 'chatcmpl-hostile',
    object: 'chat.completion',
    created: 1_700_000_000,
    model: 'hostile',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content, refusal: null, audio: null },
        logprobs: null,
        finish_reason: 'stop',
      },
    ],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    ...more,
  }
}

/** Gives a `chat.completion.chunk` with one choice. */
export function chunkOf(
  delta: object,
  finishReason: string | null = null,
  logprobs: unknown = null,
): object {
  return {
    id: 'chatcmpl-hostile',
    object: 'chat.completion.chunk',
    created: 1_700_000_000,
    model: 'hostile',
    choices: [{ index: 0, delta, logprobs, finish_reason: finishReason }],
  }
}

/** Gives the text of server-sent events, one for each value, with the given line break. */
export function eventsOf(
  values: readonly unknown[],
  lineBreak: '\n' | '\r\n' | '\r' = '\n',
): string {
  return values.map((value) => `data: ${toData(value)}${lineBreak}${lineBreak}`).join('')
}

function toData(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function head(status: number, headers: Readonly<Record<string, string>>): Buffer {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.from(`HTTP/1.1 ${status} Status\r\n${lines.join('')}\r\n`)
}
