import { isJsonObject } from '#attestation/json/value.ts'
import { readRefusal } from '#enclave/protocol/refusal.ts'
import { parseJson } from '../nodes/protocol/frames.ts'
import { CONTENT_CODINGS } from '../runtime/codings.ts'
import type { BackendAnswer } from './backend-answer.ts'
import { BackendError, backendErrorOf, refusalError, statesError } from './backend-error.ts'

type Headers = Readonly<Record<string, unknown>>

export async function* packetsOf(
  answer: Pick<BackendAnswer, 'next'>,
): AsyncGenerator<Uint8Array, void> {
  for (let packet = await answer.next(); packet !== null; packet = await answer.next()) yield packet
}

/**
 * Returns the packets of a stream of events. Some servers send a stream with another content type,
 * and others an error as a stream, without the form of an event. So only a body without any event
 * is refused: with a BackendError that has its words. `secret` is left out of them.
 */
export async function* readStream(
  answer: Pick<BackendAnswer, 'status' | 'headers' | 'next'>,
  secret: string | null,
): AsyncGenerator<Uint8Array, void> {
  const { status, headers } = answer
  const isStream = EVENT_STREAM.test(String(headers['content-type']))
  const start: Uint8Array[] = []
  let startBytes = 0
  let seen = '\n'
  let hasEvents = false
  for await (const packet of packetsOf(answer)) {
    if (hasEvents) {
      yield packet
      continue
    }
    if (startBytes <= START_BYTES_MAX) start.push(packet)
    startBytes += packet.length
    seen = seen.slice(-LINE_START_LENGTH) + Buffer.from(packet).toString('latin1')
    hasEvents = EVENT_LINE.test(seen)
    if (isStream) yield packet
    else if (hasEvents) yield Buffer.concat(start)
    else if (startBytes > START_BYTES_MAX) break
  }
  if (hasEvents) return
  const body = Buffer.concat(start)
  if (!isStream) throw refusalError({ status, headers, body, secret })
  const value = parseJson(body.toString())
  if (isJsonObject(value) && statesError(value, Object.hasOwn(value, 'choices')))
    throw backendErrorOf(readRefusal({ headers: {}, body, secret }), true)
}

/** Bytes without an event after which a body is not a stream. */
const START_BYTES_MAX = 64 * 1024

const EVENT_STREAM = /^\s*text\/event-stream\b/i
/** In bytes as latin1, where a byte order mark is ï»¿. Not `error`: it can begin a refusal. */
const EVENT_LINE = /[\r\n](?:\xef\xbb\xbf)?(?:data|event) ?:/
/** Longer than a line that EVENT_LINE matches. */
const LINE_START_LENGTH = 16

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
  if (coding === null || bytes.length === 0) return bytes
  const undone = await CONTENT_CODINGS.get(coding.replace(/^x-(?=gzip$)/, ''))?.(bytes, {
    maxOutputLength: bytesMax,
  }).catch(() => null)
  if (undone) return undone
  const fault = compressedFault(coding)
  throw status === 200
    ? new BackendError(fault)
    : refusalError({ status, headers, body: Buffer.from(fault) })
}

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
