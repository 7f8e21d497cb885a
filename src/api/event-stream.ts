import type { ServerResponse } from 'node:http'
import type { Logger } from '../observability/logger.ts'
import type { RouteContext } from './context.ts'
import { CallerLeftError } from './errors.ts'
import type { StreamSoFar } from './faces.ts'
import { recordFailure, recordProcessingTime } from './track-calls.ts'

export type EventStreamOptions = {
  readonly keepAliveMs: number
  readonly now: () => number
  readonly log: Logger
}

/**
 * Answers with the events that `write` writes. If `write` fails before anything was sent, its error
 * is thrown again, or sent as an error event if `isEvent` or the face says so. After the stream has
 * begun, every error is sent as an error event. A keep-alive comment also begins the stream.
 * `soFar` returns what the caller has received. Some faces need this for their error events.
 */
export async function streamEvents(
  context: RouteContext,
  { keepAliveMs, now, log }: EventStreamOptions,
  write: (writer: EventWriter) => Promise<unknown>,
  isEvent: (error: unknown) => boolean = () => false,
  soFar: () => StreamSoFar | null = () => null,
): Promise<void> {
  const onOpen = () => {
    context.respond = false
    recordProcessingTime(context, now)
  }
  const writer = createEventWriter({
    response: context.res,
    keepAliveMs,
    drainTimeoutMs: DRAIN_TIMEOUT_MS,
    onOpen,
  })
  const recording: EventWriter = {
    ...writer,
    write(events) {
      context.state.firstEventAtMs ??= now()
      return writer.write(events)
    },
  }
  try {
    await write(recording)
  } catch (error) {
    if (
      context.res.destroyed ||
      !(writer.isOpen() || isEvent(error) || context.state.face.isEvent(error))
    )
      throw error
    const { state } = context
    writer.end(state.face.errorEvents(recordFailure(context, error, log), state, soFar()))
  } finally {
    writer.close()
  }
}

/**
 * After this time with a full send buffer, the connection of the slow reader is cut. While the
 * buffer is full, nothing more is read from the enclave.
 */
const DRAIN_TIMEOUT_MS = 30_000

/** Methods throw CallerLeftError after the caller left. */
export type EventWriter = {
  /** True if the head has been sent. */
  isOpen(): boolean
  /**
   * Sends the head with status 200 and type event-stream. Later errors can only be sent as events.
   * Has an effect only once.
   */
  open(): void
  /** Sends whole events. Resolves when the caller can receive more. */
  write(events: Uint8Array | string): Promise<void>
  end(events: string): void
  /** Stops the keep-alive, and cuts a stream that has not ended. Call it in a `finally`. */
  close(): void
}

/**
 * Sends a comment every `keepAliveMs`, so that proxies do not close the stream. The first comment
 * opens the stream, so the caller receives something while the model still thinks. `onOpen` is
 * called before the head is sent.
 */
export function createEventWriter(options: {
  readonly response: ServerResponse
  readonly keepAliveMs: number
  readonly drainTimeoutMs: number
  readonly onOpen: () => void
}): EventWriter {
  const { response, keepAliveMs, drainTimeoutMs, onOpen } = options
  const timer = setInterval(keepAlive, keepAliveMs)
  // A write to a closed connection causes this event. `close` shows that the caller left.
  response.on('error', () => {})

  function open(): void {
    if (response.headersSent || response.destroyed) return
    onOpen()
    response.writeHead(200, STREAM_HEADERS)
    response.flushHeaders()
  }

  function keepAlive(): void {
    open()
    if (!response.writableNeedDrain && !response.writableEnded) response.write(': ping\n\n')
  }

  async function write(events: Uint8Array | string): Promise<void> {
    if (response.destroyed) throw new CallerLeftError()
    open()
    if (!response.write(events)) await drained(response, drainTimeoutMs)
  }

  function end(events: string): void {
    if (response.destroyed) throw new CallerLeftError()
    open()
    response.end(events)
  }

  return {
    isOpen: () => response.headersSent,
    open,
    write,
    end,
    close: () => {
      clearInterval(timer)
      if (response.headersSent && !response.writableEnded) response.destroy()
    },
  }
}

const STREAM_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  // Asks nginx, and proxies that follow its rules, not to delay events.
  'x-accel-buffering': 'no',
} as const

/** Waits until the written bytes have left this process. Cuts the connection of a slow reader. */
export function drained(response: ServerResponse, timeoutMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => response.destroy(), timeoutMs)
    const settle = () => {
      clearTimeout(timer)
      response.off('drain', settle).off('close', settle)
      if (response.destroyed) reject(new CallerLeftError())
      else resolve()
    }
    response.on('drain', settle).on('close', settle)
  })
}
