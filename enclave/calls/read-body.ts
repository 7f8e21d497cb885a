import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { ByteBuffer } from '#attestation/byte-buffer.ts'
import { CallFault } from '../call-fault.ts'
import type { Reservation } from '../log/memory-budget.ts'
import { takeSpace } from './answer-memory.ts'

export type BodyTerms = {
  readonly signal: AbortSignal
  readonly bytesMax: number
  readonly space: Pick<Reservation, 'grow'>
}

/** Bytes of memory for each byte of a body during reading: the buffer grows by doubling. */
const BUFFER_FACTOR = 2

/**
 * Returns the packets of a provider's answer as they arrive. Reading pauses while the consumer
 * pauses. Throws the reason of a cancel. Throws CallFault `provider_error` when the connection was
 * lost before the end that HTTP requires, and `answer_too_large` above `bytesMax` or without memory
 * for the next packet.
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
          `The provider's answer is over ${terms.bytesMax} bytes (ANSWER_BYTES_MAX): ` +
            'ask for fewer tokens or choices.',
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
 * Returns the whole body and its SHA-256 (hex). Providers send leading white space while they
 * compute. Throws the errors of readPackets.
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
    terms.watchdog.touch()
    if (!hasBegun && !packet.every((byte) => WHITE_SPACE.has(byte))) {
      hasBegun = true
      terms.watchdog.expect('more of its answer', terms.idleTimeoutMs)
    }
  }
  return { bytes: buffer.take(), hash: hash.digest('hex') }
}

/** White space of JSON (RFC 8259 section 2). */
const WHITE_SPACE: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d])

/** Cancels a call with CallFault `provider_timeout` if the provider is silent for too long. */
export type Watchdog = {
  /** Starts a time limit for `what`. Replaces an earlier time limit. */
  readonly expect: (what: string, withinMs: number) => void
  /** Data arrived: the time limit starts again. */
  readonly touch: () => void
  /** Stops the time limit. Called while no data from the provider is expected. */
  readonly rest: () => void
}

/** Creates a watchdog. The caller must call `rest` when the completion call ends. */
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
