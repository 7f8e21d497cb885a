import type { Backend } from './backend.ts'
import { BackendError } from './backend-error.ts'
import type { RunOutcome } from './chat-run.ts'
import { encodeImageFailure, encodeImages, IMAGE_FRAME_BYTES_MAX, type ImageRequest } from './image-frames.ts'

/**
 * Answers one request for images, with one frame: images, or what went wrong. A cancelled run ends with an error that nobody reads. Never
 * rejects.
 */
export async function runImages(
  { id, model, request }: { readonly id: string; readonly model: string; readonly request: ImageRequest },
  {
    backend,
    signal,
    send,
  }: {
    readonly backend: Pick<Backend, 'makeImages'>
    /** Its reason is a RunAbort. */
    readonly signal: AbortSignal
    readonly send: (frame: string) => void | Promise<void>
  },
): Promise<RunOutcome> {
  try {
    const frame = encodeImages(id, await backend.makeImages({ ...request, model }, signal))
    signal.throwIfAborted()
    // Base64 and its frame have one byte for each character.
    if (frame.length > IMAGE_FRAME_BYTES_MAX)
      throw new BackendError(`expected images that fit ${IMAGE_FRAME_BYTES_MAX} bytes`)
    await send(frame)
    return { kind: 'done' }
  } catch (error) {
    if (signal.aborted) return endAborted(id, signal, send)
    const fault = error instanceof BackendError ? error : new BackendError('the node failed')
    await send(encodeImageFailure(id, fault))
    return { kind: 'failed', statusCode: fault.statusCode }
  }
}

async function endAborted(
  id: string,
  signal: AbortSignal,
  send: (frame: string) => void | Promise<void>,
): Promise<RunOutcome> {
  const kind = signal.reason === 'cancelled' || signal.reason === 'stopped' ? signal.reason : 'lost'
  if (kind !== 'lost')
    await send(encodeImageFailure(id, { statusCode: 500, message: `the request was ${kind}` }))
  return { kind }
}
