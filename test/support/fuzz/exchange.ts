import { connect } from 'node:net'
import { type FuzzRequest, writeRequest } from './fuzz-request.ts'
import { type RawReply, readReply } from './raw-reply.ts'

/**
 * A whole request is answered sooner than this, and a connection that was given up is closed
 * sooner.
 */
export const ANSWER_TIMEOUT_MS = 20_000

/** Time after which a request that may never be complete is given up. */
const PATIENCE_MS = 150

/** The outcome of a request. `closed`: the other side ended the connection without a reply. */
export type Outcome =
  | { readonly kind: 'reply'; readonly reply: RawReply }
  | { readonly kind: 'closed' }

/**
 * Sends a request over a new connection. Rejects when it hangs, and when the answer is not HTTP.
 */
export function exchange(port: number, request: FuzzRequest): Promise<Outcome> {
  return exchangeBytes(port, {
    bytes: writeRequest(request),
    method: request.method,
    isWhole: request.framing.kind !== 'conflicting',
  })
}

/**
 * The same for any bytes. If they are not a whole request, the connection is half-closed after a
 * while.
 */
export function exchangeBytes(
  port: number,
  sent: { readonly bytes: Uint8Array; readonly method: string; readonly isWhole: boolean },
): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    const parts: Buffer[] = []
    const timers = [setTimeout(() => settle(hangsAfter(parts)), ANSWER_TIMEOUT_MS)]
    if (!sent.isWhole) timers.push(setTimeout(() => socket.end(), PATIENCE_MS))

    function settle(outcome: Outcome | Error): void {
      for (const timer of timers) clearTimeout(timer)
      socket.destroy()
      if (outcome instanceof Error) reject(outcome)
      else resolve(outcome)
    }

    function look(isClosed: boolean): void {
      try {
        const reply = readReply(Buffer.concat(parts), sent.method, isClosed)
        if (reply !== null) settle({ kind: 'reply', reply })
        else if (isClosed) settle({ kind: 'closed' })
      } catch (error) {
        settle(error instanceof Error ? error : new Error(String(error)))
      }
    }

    socket.on('data', (part) => {
      parts.push(part)
      look(false)
    })
    socket.on('end', () => look(true))
    // A reset counts as an end like any other; the bytes before it count.
    socket.on('error', () => look(true))
    socket.on('close', () => look(true))
    socket.write(sent.bytes)
  })
}

function hangsAfter(parts: readonly Buffer[]): Error {
  const got = Buffer.concat(parts).toString('latin1').slice(0, 500)
  return new Error(`no end within ${ANSWER_TIMEOUT_MS} ms, after ${JSON.stringify(got)}`)
}
