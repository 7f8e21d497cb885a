import type { ServerResponse } from 'node:http'
import { CallerGone } from '../call-fault.ts'
import { STREAM_EVENTS } from '../protocol/enclave-api.ts'

export type StreamSink = {
  /** Sends text, after the response's head. Returns true if the connection's buffer has room. */
  readonly write: (text: string) => boolean
  /**
   * Resolves when the buffer has room again, or when the call is cancelled. Cancels the call with
   * CallerGone if the buffer stays full for the drain timeout.
   */
  readonly drained: () => Promise<void>
  /**
   * Takes the last chunk (canonical text), which is sent with the proof. Returns true if the buffer
   * has room.
   */
  readonly last: (chunk: string) => boolean
}

/** Until the first write, a fault can still set the status. */
export function openSink(
  response: ServerResponse,
  options: { readonly cancel: AbortController; readonly drainTimeoutMs: number },
): StreamSink {
  const { cancel, drainTimeoutMs } = options
  const write = (text: string) => {
    // The call outlives the gateway's connection and continues without a reader.
    if (response.destroyed) return true
    if (!response.headersSent)
      response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
    return response.write(text)
  }
  return {
    write,
    drained: () => waitForDrain(response, cancel, drainTimeoutMs),
    last: (chunk) => write(`event: ${STREAM_EVENTS.last}\ndata: ${chunk}\n\n`),
  }
}

/** Resolves when the response has room again, or is closed. See StreamSink.drained. */
export function waitForDrain(
  response: ServerResponse,
  cancel: AbortController,
  timeoutMs: number,
): Promise<void> {
  const { signal } = cancel
  if (signal.aborted || response.destroyed) return Promise.resolve()
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer)
      response.off('drain', finish).off('close', finish)
      signal.removeEventListener('abort', finish)
      resolve()
    }
    const timer = setTimeout(
      () => cancel.abort(new CallerGone(`no reading within ${timeoutMs} ms`)),
      timeoutMs,
    )
    response.on('drain', finish).on('close', finish)
    signal.addEventListener('abort', finish)
  })
}
