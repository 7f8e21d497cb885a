import { ByteBuffer } from '#attestation/byte-buffer.ts'
import {
  type AnswerStreamReader,
  type KeptStreamedAnswer,
  withStreamError,
} from './answer-readers.ts'
import { AffidavitError, messageOf } from './errors.ts'

/**
 * Passes on a stream of server-sent events as it arrives. The proof's event and the end of the
 * stream follow only if `check` accepts all that `answer` has read. Otherwise the stream fails:
 * with the error of `check` or `source`, or with AffidavitError `invalid_stream`, `cut_stream`,
 * `error_in_answer`, `answer_too_large`, `no_proof`.
 *
 * Data after the end is dropped. With `hold`, nothing is passed on before the whole stream was
 * checked, and comments are dropped. Back-pressure and cancellation reach `source`. If `signal` was
 * aborted, this stream fails with the error of `source`.
 */
export function checkedStream(
  source: ReadableStream<Uint8Array>,
  {
    answer,
    check,
    onEnd = () => undefined,
    hold,
    bytesMax,
    signal,
  }: {
    readonly answer: AnswerStreamReader
    readonly check: (kept: KeptStreamedAnswer) => Promise<void>
    /** Called when the stream has ended: whole, with an error, or because its reader left. */
    readonly onEnd?: () => void
    readonly hold: boolean
    readonly bytesMax: number
    readonly signal?: AbortSignal
  },
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const reader = source.getReader()
  const splitEvents = createEventSplitter(bytesMax)
  const held: Uint8Array<ArrayBuffer>[] = []
  let hasProof = false
  let isProven = false

  async function pull(controller: ReadableStreamDefaultController<Uint8Array<ArrayBuffer>>) {
    for (;;) {
      const { done, value } = await read()
      if (done) throw cut(hasProof)
      let isGiven = false
      for (const bytes of splitEvents(value)) {
        const kind = withStreamError(() => answer.read(decodeLines(bytes)))
        hasProof ||= kind === 'proof'
        // The proof and the end wait for the check, because a reader could receive them and stop
        // reading before the check ends.
        if (hold || hasProof || kind === 'end') {
          // Comments are dropped: they may be endless, and no reader needs them here.
          if (kind !== 'unshown') held.push(bytes)
        } else {
          controller.enqueue(bytes)
          isGiven = true
        }
        if (kind !== 'end') continue
        await check(answer.kept())
        isProven = true
        onEnd()
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
      // An AffidavitError is a fault of an encrypted frame. Any other error ended the stream early.
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
          onEnd()
          void reader.cancel(fault).catch(() => undefined)
          throw fault
        }
      },
      async cancel(reason) {
        onEnd()
        if (!isProven) await reader.cancel(reason)
      },
    },
    // With this limit, the stream reads from the gateway only when the caller reads.
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
 * Lines must end with a single line feed, as the gateway writes them: readers treat other line ends
 * differently.
 */
function createEventSplitter(bytesMax: number) {
  const rest = new ByteBuffer()
  let length = 0

  return function* split(bytes: Uint8Array): Generator<Uint8Array<ArrayBuffer>> {
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
      yield part
    }
    rest.append(bytes.subarray(start))
  }
}

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d

/** Returns -1 without a complete event. An event ends with two line feeds. */
function findEventEnd(bytes: Uint8Array, from: number): number {
  for (let at = bytes.indexOf(LINE_FEED, from); at >= 0; at = bytes.indexOf(LINE_FEED, at + 1))
    if (bytes[at + 1] === LINE_FEED) return at + 2
  return -1
}

/** Keeps byte order marks: some readers drop them at the beginning of a line. */
function decodeLines(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw invalid('expected the stream to be UTF-8')
  }
}

function invalid(message: string): AffidavitError {
  return new AffidavitError('invalid_stream', message)
}
