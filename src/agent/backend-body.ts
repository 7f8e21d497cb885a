import { promisify } from 'node:util'
import { brotliDecompress, gunzip, inflate } from 'node:zlib'
import type { BackendAnswer } from './backend-answer.ts'
import { BackendError, refusalError } from './backend-error.ts'

type Headers = Readonly<Record<string, unknown>>

export async function* packetsOf(
  answer: Pick<BackendAnswer, 'next'>,
): AsyncGenerator<Uint8Array, void> {
  for (let packet = await answer.next(); packet !== null; packet = await answer.next()) yield packet
}

/**
 * Returns the packets of a stream of events. Some servers send a stream with another content type,
 * so only a body without any event is refused: with a BackendError that has its words. `secret` is
 * left out of them.
 */
export async function* readStream(
  answer: Pick<BackendAnswer, 'status' | 'headers' | 'next'>,
  secret: string | null,
): AsyncGenerator<Uint8Array, void> {
  const { status, headers } = answer
  let isStream = EVENT_STREAM.test(String(headers['content-type']))
  let start = Buffer.alloc(0)
  for await (const packet of packetsOf(answer)) {
    if (isStream) {
      yield packet
      continue
    }
    start = Buffer.concat([start, packet])
    isStream = EVENT_LINE.test(start.toString('utf8'))
    if (isStream) yield start
    else if (start.length > START_BYTES_MAX) break
  }
  if (!isStream) throw refusalError({ status, headers, body: start, secret })
}

/** Bytes without an event after which a body is not a stream. */
const START_BYTES_MAX = 64 * 1024

const EVENT_STREAM = /^\s*text\/event-stream\b/i
/** Not `error`: as a line of a plain text, it can be the words of a refusal. */
const EVENT_LINE = /(?:^\uFEFF?|[\r\n])(?:data|event)\s*:/

/** Throws BackendError if the body is longer than `bytesMax`. */
async function readBytes(body: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Buffer> {
  const parts: Uint8Array[] = []
  let size = 0
  for await (const part of body) {
    size += part.length
    if (size > bytesMax) throw new BackendError(`the backend sent more than ${bytesMax} bytes`)
    parts.push(part)
  }
  return Buffer.concat(parts)
}

/**
 * Reads a whole body, and undoes its coding: some servers compress although the request forbids it.
 * If that is not possible, throws a BackendError that names the coding and has the answer's status.
 */
export async function readWholeBody(
  answer: {
    readonly status: number
    readonly headers: Headers
    readonly body: AsyncIterable<Uint8Array>
  },
  bytesMax: number,
): Promise<Buffer> {
  const { status, headers } = answer
  const bytes = await readBytes(answer.body, bytesMax)
  const coding = codingOf(headers)
  if (coding === null) return bytes
  const undone = await CODINGS.get(coding)?.(bytes, { maxOutputLength: bytesMax }).catch(() => null)
  if (undone) return undone
  const fault = compressedFault(coding)
  throw status === 200
    ? new BackendError(fault)
    : refusalError({ status, headers, body: Buffer.from(fault) })
}

const CODINGS: ReadonlyMap<
  string,
  (bytes: Buffer, options: { readonly maxOutputLength: number }) => Promise<Buffer>
> = new Map([
  ['gzip', promisify(gunzip)],
  ['x-gzip', promisify(gunzip)],
  ['deflate', promisify(inflate)],
  ['br', promisify(brotliDecompress)],
])

/** Null if the body is not compressed. */
export function codingOf(headers: Headers): string | null {
  const coding = String(headers['content-encoding'] ?? '')
    .trim()
    .toLowerCase()
  return coding === '' || coding === 'identity' ? null : coding.slice(0, 40)
}

export function compressedFault(coding: string): string {
  return `the backend compressed its answer (${coding}) although it was asked not to`
}
