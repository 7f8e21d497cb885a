import type { Dispatcher } from 'undici'

/** Above this number of unread bytes, the answer's connection is paused. */
export const ANSWER_WAITING_BYTES_MAX = 256 * 1024

/** Above this number of bytes after an answer's end mark, the answer's connection is closed. */
const TAIL_BYTES_MAX = 16 * 1024
const TAIL_TIMEOUT_MS = 1_000

/** Only one reader may read the packets. */
export type BackendAnswer = {
  readonly status: number
  /** The names are in lower case. */
  readonly headers: Readonly<Record<string, unknown>>
  /**
   * Returns the next packet, or null after the last packet. After a fault, first returns the
   * earlier packets. Then rejects with the connection's fault or the signal's reason.
   */
  next(): Promise<Uint8Array | null>
  /**
   * `isWhole`: the caller has read all that it needs, and the connection stays open for other
   * calls. Otherwise the call is aborted.
   */
  leave(isWhole: boolean): void
}

/**
 * Resolves when the answer's head has arrived. Rejects with the connection's fault or the signal's
 * reason. Uses no stream, because most answers are many small packets.
 */
export function openBackendAnswer(
  pool: Pick<Dispatcher, 'dispatch'>,
  request: Dispatcher.DispatchOptions,
  signal: AbortSignal,
): Promise<BackendAnswer> {
  signal.throwIfAborted()
  const reading = new Reading(signal)
  pool.dispatch(request, reading)
  return reading.opened.promise
}

class Reading implements Dispatcher.DispatchHandler, BackendAnswer {
  readonly opened = createDeferred<BackendAnswer>()
  status = 0
  headers: Readonly<Record<string, unknown>> = {}
  private readonly signal: AbortSignal
  private readonly onAbort = () => {
    this.packets = []
    this.fail(this.signal.reason)
  }
  private controller: Dispatcher.DispatchController | null = null
  private packets: Uint8Array[] = []
  private waitingBytes = 0
  private tailBytes = 0
  private tailTimer: NodeJS.Timeout | undefined
  private phase: 'reading' | 'tail' | 'ended' = 'reading'
  private fault: { readonly reason: unknown } | null = null
  private reader: Deferred<void> | null = null

  constructor(signal: AbortSignal) {
    this.signal = signal
    signal.addEventListener('abort', this.onAbort)
  }

  async next(): Promise<Uint8Array | null> {
    if (this.packets.length === 0 && this.phase === 'reading') {
      this.reader = createDeferred()
      await this.reader.promise
    }
    const packet = this.packets.shift()
    if (packet !== undefined) {
      this.waitingBytes -= packet.length
      if (this.packets.length === 0) this.controller?.resume()
      return packet
    }
    if (this.fault !== null) throw this.fault.reason
    return null
  }

  leave(isWhole: boolean): void {
    if (this.phase !== 'reading') return
    this.detach()
    if (!isWhole) {
      this.giveUp()
      return
    }
    this.phase = 'tail'
    this.controller?.resume()
    this.tailTimer = setTimeout(() => this.giveUp(), TAIL_TIMEOUT_MS)
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.controller = controller
    if (this.phase === 'ended') controller.abort(LEFT)
  }

  onResponseStart(
    _: Dispatcher.DispatchController,
    status: number,
    headers: Readonly<Record<string, unknown>>,
  ): void {
    // A status 1xx is only an interim answer.
    if (status < 200) return
    this.status = status
    this.headers = headers
    this.opened.resolve(this)
  }

  onResponseData(controller: Dispatcher.DispatchController, packet: Uint8Array): void {
    if (this.phase === 'reading') {
      this.packets.push(packet)
      this.waitingBytes += packet.length
      if (this.waitingBytes > ANSWER_WAITING_BYTES_MAX) controller.pause()
      this.wake()
      return
    }
    this.tailBytes += packet.length
    if (this.tailBytes > TAIL_BYTES_MAX) this.giveUp()
  }

  onResponseEnd(): void {
    this.end()
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.fail(error)
  }

  private fail(reason: unknown): void {
    if (this.phase === 'ended') return
    this.fault = { reason }
    this.opened.reject(reason)
    this.giveUp()
  }

  /** Ends the call. A call that still waits for a connection ends once it has the connection. */
  private giveUp(): void {
    this.end()
    this.controller?.abort(LEFT)
  }

  private end(): void {
    this.phase = 'ended'
    clearTimeout(this.tailTimer)
    this.detach()
    this.wake()
  }

  private detach(): void {
    this.signal.removeEventListener('abort', this.onAbort)
  }

  private wake(): void {
    this.reader?.resolve()
    this.reader = null
  }
}

/** Ends an answer after its caller stopped reading. This error is never reported. */
const LEFT = new Error('the answer is not read any further')

type Deferred<Value> = {
  readonly promise: Promise<Value>
  readonly resolve: (value: Value) => void
  readonly reject: (reason: unknown) => void
}

/** Promise.withResolvers needs Node.js 22. The installed agent must also run on Node.js 20. */
function createDeferred<Value>(): Deferred<Value> {
  let settle: Omit<Deferred<Value>, 'promise'> | undefined
  const promise = new Promise<Value>((resolve, reject) => {
    settle = { resolve, reject }
  })
  if (settle === undefined) throw new Error('expected an executor that runs at once')
  return { promise, ...settle }
}
