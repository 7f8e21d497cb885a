import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { ByteBuffer } from '../../attestation/byte-buffer.ts'
import { CallFault } from '../call-fault.ts'
import type { Reservation } from '../log/memory-budget.ts'
import { takeSpace } from './answer-memory.ts'

/** What reading an answer's body needs to know. */
export type BodyTerms = {
  readonly signal: AbortSignal
  readonly bytesMax: number
  /** Gives memory for every packet. */
  readonly space: Pick<Reservation, 'grow'>
}

/**
 * Memory for each byte of a body that is being read: the array that it is kept in grows by
 * doubling.
 */
const BUFFER_FACTOR = 2

/**
 * The packets of a provider's answer as they come; reading pauses while the consumer does. Ends
 * when the body ended as HTTP says it should. Throws the reason the call was cancelled for,
 * CallFault `provider_error` when the connection was lost in the middle, `answer_too_large` over
 * `bytesMax` and when there is no memory for the next packet.
 */
export async function* readPackets(
  body: IncomingMessage,
  terms: BodyTerms,
): AsyncGenerator<Uint8Array, void> {
  let bytes = 0
  try {
    for await (const packet of body as AsyncIterable<Uint8Array>) {
      bytes += packet.length
      if (bytes > terms.bytesMax)
        throw new CallFault(
          'answer_too_large',
          `The provider's answer is over ${terms.bytesMax} bytes (ANSWER_BYTES_MAX): ask for fewer tokens or choices.`,
        )
      takeSpace(terms.space.grow(packet.length * BUFFER_FACTOR))
      yield packet
      terms.signal.throwIfAborted()
    }
  } catch (error) {
    if (terms.signal.aborted) throw terms.signal.reason
    if (error instanceof CallFault) throw error
    throw new CallFault('provider_error', 'The provider broke its answer off.')
  }
}

/**
 * The whole body and its SHA-256 (hex). White space before the first other byte does not count as
 * an answer for the watchdog: providers send it to keep connections open while they think. Throws
 * as readPackets.
 */
export async function readAnswerBody(
  body: IncomingMessage,
  terms: BodyTerms & { readonly watchdog: Watchdog; readonly idleTimeoutMs: number },
): Promise<{ readonly bytes: Uint8Array; readonly hash: string }> {
  const buffer = new ByteBuffer()
  const hash = createHash('sha256')
  let hasBegun = false
  for await (const packet of readPackets(body, terms)) {
    hash.update(packet)
    buffer.append(packet)
    if (hasBegun) terms.watchdog.touch()
    else if (!packet.every((byte) => WHITE_SPACE.has(byte))) {
      hasBegun = true
      terms.watchdog.expect('more of its answer', terms.idleTimeoutMs)
    }
  }
  return { bytes: buffer.take(), hash: hash.digest('hex') }
}

/** Of JSON (RFC 8259 section 2). */
const WHITE_SPACE: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d])

/**
 * Ends a call whose provider is silent too long: cancels it with a CallFault `provider_timeout`.
 */
export type Watchdog = {
  /** Starts waiting for something; replaces what was waited for before. */
  readonly expect: (what: string, withinMs: number) => void
  /** It came: the wait starts again. */
  readonly touch: () => void
  /** Nothing is expected of the provider now. */
  readonly rest: () => void
}

/** A watchdog over one call. Rest it when the call is over. */
export function createWatchdog(cancel: AbortController): Watchdog {
  let timer: NodeJS.Timeout | undefined
  return {
    expect: (what, withinMs) => {
      clearTimeout(timer)
      timer = setTimeout(() => {
        cancel.abort(
          new CallFault(
            'provider_timeout',
            `The provider did not send ${what} within ${withinMs} ms.`,
          ),
        )
      }, withinMs)
    },
    touch: () => {
      timer?.refresh()
    },
    rest: () => clearTimeout(timer),
  }
}
