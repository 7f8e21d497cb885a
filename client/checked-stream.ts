import { addChunk, emptyAssembly } from '../attestation/assemble-completion.ts'
import { ByteBuffer } from '../attestation/byte-buffer.ts'
import { PROOF_MEMBERS } from '../attestation/completion-hash.ts'
import { FormatError } from '../attestation/errors.ts'
import { JsonError } from '../attestation/json/json-error.ts'
import { parseExactJson } from '../attestation/json/parse-strict.ts'
import { isJsonObject, type JsonObject, memberOf } from '../attestation/json/value.ts'
import { readEvent } from '../attestation/verify-stream.ts'
import { createAnswerSize } from './answer-size.ts'
import { describeGatewayError } from './check-answer.ts'
import { AffidavitError, messageOf } from './errors.ts'

/** One complete event of a stream: its kind and its bytes. */
type StreamEvent =
  | { readonly kind: 'unshown' } // comments and such
  | { readonly kind: 'chunk'; readonly chunk: JsonObject; readonly hasProof: boolean }
  | { readonly kind: 'end' } //     [DONE]

/**
 * Passes on a stream of server-sent events as it arrives. The chunk with the proof and `[DONE]`
 * follow only if `check` accepts all chunks. Otherwise the stream fails: with the error of `check`
 * or `source`, or with AffidavitError `invalid_stream`, `cut_stream`, `error_in_answer`,
 * `answer_too_large`, `no_proof`.
 *
 * Data after `[DONE]` is dropped. With `hold`, nothing is passed on before the whole stream was
 * checked, and comments are dropped. Back-pressure and a cancel of this stream reach `source`. If
 * `signal` was aborted, this stream fails with the error of `source`.
 */
export function checkedStream(
  source: ReadableStream<Uint8Array>,
  {
    check,
    hold,
    bytesMax,
    signal,
  }: {
    readonly check: (chunks: readonly JsonObject[]) => Promise<void>
    readonly hold: boolean
    readonly bytesMax: number
    readonly signal?: AbortSignal
  },
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const reader = source.getReader()
  const events = createEventReader(bytesMax)
  const held: Uint8Array<ArrayBuffer>[] = []
  let isProven = false

  /** Reads until data can be passed on, or until the end. */
  async function pull(controller: ReadableStreamDefaultController<Uint8Array<ArrayBuffer>>) {
    for (;;) {
      const { done, value } = await read()
      if (done) throw cut(events.hasProof())
      let isGiven = false
      for (const { event, bytes } of events.add(value)) {
        // A waiting reader receives enqueued data at once and may stop at `[DONE]`, so this data
        // waits for the check.
        if (hold || events.hasProof() || event.kind === 'end') {
          // Comments are dropped: they may be endless, and no reader needs them here.
          if (event.kind !== 'unshown') held.push(bytes)
        } else {
          controller.enqueue(bytes)
          isGiven = true
        }
        if (event.kind !== 'end') continue
        await check(events.chunks())
        isProven = true
        for (const part of held) controller.enqueue(part)
        controller.close()
        void reader.cancel().catch(() => undefined)
        return
      }
      if (isGiven) return
    }
  }

  async function read() {
    try {
      return await reader.read()
    } catch (cause) {
      // This error shows the caller's client that the caller aborted.
      if (signal?.aborted === true) throw cause
      // A frame does not come from the enclave. A stream that ends early is another case.
      if (cause instanceof AffidavitError) throw cause
      throw new AffidavitError('cut_stream', `the stream ended early: ${messageOf(cause)}`, {
        cause,
      })
    }
  }

  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        try {
          await pull(controller)
        } catch (fault) {
          void reader.cancel(fault).catch(() => undefined)
          throw fault
        }
      },
      async cancel(reason) {
        if (!isProven) await reader.cancel(reason)
      },
    },
    // The stream then reads from the gateway only when the caller reads.
    { highWaterMark: 0 },
  )
}

function cut(hasProof: boolean): AffidavitError {
  return new AffidavitError(
    'cut_stream',
    hasProof
      ? 'expected the stream to end with [DONE]'
      : 'the stream ended without its proof: it is not known how much is missing',
  )
}

/**
 * Splits bytes into events and parses each event. Lines must end with a single line feed, as the
 * gateway writes them: readers treat other line ends differently.
 */
function createEventReader(bytesMax: number) {
  const assembly = emptyAssembly()
  const size = createAnswerSize()
  const chunks: JsonObject[] = []
  /** Bytes since the last complete event. */
  const rest = new ByteBuffer()
  let length = 0
  let hasProof = false

  function* add(
    bytes: Uint8Array,
  ): Generator<{ readonly event: StreamEvent; readonly bytes: Uint8Array<ArrayBuffer> }> {
    length += bytes.length
    if (length > bytesMax)
      throw new AffidavitError('answer_too_large', `expected at most ${bytesMax} bytes`)
    if (bytes.includes(CARRIAGE_RETURN))
      throw invalid('expected lines to end with a line feed alone')
    let start = 0
    // The two line feeds that end an event may arrive in two parts.
    let end = rest.last === LINE_FEED && bytes[0] === LINE_FEED ? 1 : -1
    for (;;) {
      if (end < 0) end = findEventEnd(bytes, start)
      if (end < 0) break
      rest.append(bytes.subarray(start, end))
      const part = new Uint8Array(rest.take())
      start = end
      end = -1
      yield { event: readOne(part), bytes: part }
    }
    rest.append(bytes.subarray(start))
  }

  function readOne(bytes: Uint8Array): StreamEvent {
    const text = decodeLines(bytes)
    refuseError(text)
    const [data] = withStreamError(() => readEvent(text))
    if (data === undefined) return { kind: 'unshown' }
    if (data === '[DONE]') return { kind: 'end' }
    if (hasProof) throw invalid('expected nothing but [DONE] after the chunk with the proof')
    size.add(data)
    const chunk = withStreamError(() => parseExactJson(new TextEncoder().encode(data)))
    if (!isJsonObject(chunk)) throw invalid('expected every chunk to be an object')
    if (memberOf(chunk, 'error') !== undefined)
      throw new AffidavitError('error_in_answer', describeGatewayError(memberOf(chunk, 'error')))
    withStreamError(() => addChunk(assembly, chunk))
    hasProof = memberOf(chunk, 'receipt') !== undefined
    if (!hasProof && PROOF_MEMBERS.some((name) => Object.hasOwn(chunk, name)))
      throw invalid('expected no part of a proof before the last chunk')
    chunks.push(chunk)
    return { kind: 'chunk', chunk, hasProof }
  }

  return { add, chunks: () => chunks, hasProof: () => hasProof }
}

/**
 * Throws if the event is an error with which the gateway ends a failed stream (interface, part 6).
 */
function refuseError(text: string): void {
  const [, data] = /^event: ?error\ndata: ?(.*)$/m.exec(text) ?? []
  if (data === undefined) return
  createAnswerSize().add(data)
  const json = withStreamError(() => parseExactJson(new TextEncoder().encode(data)))
  const error = isJsonObject(json) ? memberOf(json, 'error') : undefined
  throw new AffidavitError('error_in_answer', describeGatewayError(error))
}

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d

/**
 * Returns the position after the first complete event from `from` on, or -1. An event ends with two
 * line feeds.
 */
function findEventEnd(bytes: Uint8Array, from: number): number {
  for (let at = bytes.indexOf(LINE_FEED, from); at >= 0; at = bytes.indexOf(LINE_FEED, at + 1))
    if (bytes[at + 1] === LINE_FEED) return at + 2
  return -1
}

/** Decodes lines and keeps byte order marks. Some readers drop them at the beginning of a line. */
function decodeLines(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw invalid('expected the stream to be UTF-8')
  }
}

function withStreamError<Type>(read: () => Type): Type {
  try {
    return read()
  } catch (fault) {
    if (!(fault instanceof FormatError || fault instanceof JsonError)) throw fault
    throw new AffidavitError('invalid_stream', fault.message, { cause: fault })
  }
}

function invalid(message: string): AffidavitError {
  return new AffidavitError('invalid_stream', message)
}
