import type { JsonObject } from '../../attestation/json/value.ts'
import type { Backend } from './backend.ts'
import { BackendError } from './backend-error.ts'
import { encodeChunk, encodeDone, encodeFailure, FRAME_BYTES_MAX } from './frames.ts'

/** How a run ended. Nothing of it is the request's or the answer's. */
export type RunOutcome =
  | { readonly kind: 'done' | RunAbort }
  | { readonly kind: 'failed'; readonly statusCode: number }

/** Why a run is aborted: the caller left, the agent does not wait any longer, or the connection is gone. */
export type RunAbort = 'cancelled' | 'stopped' | 'lost'

/**
 * Answers one chat request: frames of status 1, the usage last, then one of status 2, or one of status 3 that tells the
 * backend's error. A cancelled run ends as one that is done. `send` resolves when more may be sent. Never rejects.
 */
export async function runChat(
  request: { readonly id: string; readonly model: string; readonly body: JsonObject },
  {
    backend,
    signal,
    send,
  }: {
    readonly backend: Pick<Backend, 'streamChat'>
    /** Its reason is a RunAbort. */
    readonly signal: AbortSignal
    readonly send: (frame: string) => void | Promise<void>
  },
): Promise<RunOutcome> {
  const { id, model, body } = request
  try {
    for await (const chunks of backend.streamChat({ ...body, model }, signal))
      for (const { text } of chunks) {
        const frame = encodeChunk(id, text)
        if (isTooLarge(frame)) throw new BackendError(`expected chunks that fit ${FRAME_BYTES_MAX} bytes`)
        const sent = send(frame)
        if (sent !== undefined) await sent
        signal.throwIfAborted()
      }
    await send(encodeDone(id))
    return { kind: 'done' }
  } catch (error) {
    if (signal.aborted) return endAborted(id, signal, send)
    const fault = error instanceof BackendError ? error : new BackendError('the node failed')
    await send(encodeFailure(id, fault))
    return { kind: 'failed', statusCode: fault.statusCode }
  }
}

async function endAborted(
  id: string,
  signal: AbortSignal,
  send: (frame: string) => void | Promise<void>,
): Promise<RunOutcome> {
  switch (signal.reason) {
    case 'cancelled':
      await send(encodeDone(id))
      return { kind: 'cancelled' }
    case 'stopped':
      await send(encodeFailure(id, { statusCode: 500, message: 'the node stopped' }))
      return { kind: 'stopped' }
    default:
      return { kind: 'lost' }
  }
}

/** Counts bytes only where characters alone do not decide. */
function isTooLarge(frame: string): boolean {
  if (frame.length * 3 <= FRAME_BYTES_MAX) return false
  return Buffer.byteLength(frame) > FRAME_BYTES_MAX
}
