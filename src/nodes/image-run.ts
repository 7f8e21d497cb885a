import { DispatchError } from './dispatcher.ts'
import { faultError } from './fault-error.ts'
import type { ImageReservation } from './image-budget.ts'
import type { ImageFrame } from './image-frames.ts'
import type { NodeLimits } from './limits.ts'
import type { Lane } from './node-index.ts'
import type { Slot } from './slots.ts'

/** What an image run tells its connection; each at most once, in this order. */
export type ImageRunHooks = {
  /** It failed through the node; `error` says how. */
  onFailed(run: ImageRun, error: DispatchError): void
  /** Nobody waits for it any more, but the node is still at it. */
  onDraining(run: ImageRun): void
  /** The node did not end it in all that time. */
  onAbandoned(run: ImageRun): void
  /** Over: slot and reservation are given back. */
  onClosed(run: ImageRun): void
}

export type ImageRunOptions = {
  readonly id: string
  readonly lane: Lane
  readonly slot: Slot
  readonly reservation: ImageReservation
  readonly signal: AbortSignal
  /** A question of ours. */
  readonly isProbe: boolean
  readonly limits: Pick<NodeLimits, 'imageMs' | 'drainMs'>
  readonly now: () => number
  readonly hooks: ImageRunHooks
}

/**
 * One request for images on one node: a question and one answer. `waiting`. `draining`: nobody listens any more, but slot and
 * memory are kept, because the node is still drawing. `closed`.
 */
export class ImageRun {
  readonly options: ImageRunOptions
  /** The images as the node sent them, unchecked. Rejects with DispatchError, or the signal's reason. */
  readonly answer: Promise<readonly string[]>
  readonly startedAtMs: number
  /** Whether its caller went before the answer came. */
  hasLeft = false
  private phase: 'waiting' | 'draining' | 'closed' = 'waiting'
  private readonly outcome = Promise.withResolvers<readonly string[]>()
  private readonly onAbort = () => this.leave()

  constructor(options: ImageRunOptions) {
    this.options = options
    this.startedAtMs = options.now()
    this.answer = this.outcome.promise
    // A caller who left does not await it.
    this.answer.catch(() => {})
    options.signal.addEventListener('abort', this.onAbort)
  }

  get id(): string {
    return this.options.id
  }

  isWaiting(): boolean {
    return this.phase === 'waiting'
  }

  /** Takes the node's answer. */
  receive(frame: ImageFrame): void {
    const { images, error } = frame
    if (error !== null) this.settle(refusalOf(frame, error))
    else this.settle(images ?? new DispatchError('node_failed', 'The node sent no images'))
    this.close()
  }

  /** Ends it at once: its connection is gone, or this process stops. */
  fail(error: DispatchError): void {
    this.settle(error)
    this.close()
  }

  /** Acts when a deadline has passed. */
  check(nowMs: number): void {
    const { limits, hooks } = this.options
    const waitedMs = nowMs - this.startedAtMs
    if (this.phase === 'waiting' && waitedMs >= limits.imageMs) {
      this.settle(new DispatchError('first_token_timeout', 'The node sent no images in time'))
      this.drain()
    } else if (this.phase === 'draining' && waitedMs >= limits.imageMs + limits.drainMs) {
      hooks.onAbandoned(this)
      this.close()
    }
  }

  private leave(): void {
    if (this.phase !== 'waiting') return
    this.hasLeft = true
    this.outcome.reject(this.options.signal.reason)
    this.drain()
  }

  private drain(): void {
    this.phase = 'draining'
    this.options.hooks.onDraining(this)
  }

  private settle(outcome: readonly string[] | DispatchError): void {
    if (this.phase !== 'waiting') return
    this.options.signal.removeEventListener('abort', this.onAbort)
    if (outcome instanceof DispatchError) {
      this.options.hooks.onFailed(this, outcome)
      this.outcome.reject(outcome)
    } else this.outcome.resolve(outcome)
  }

  private close(): void {
    if (this.phase === 'closed') return
    this.phase = 'closed'
    this.options.signal.removeEventListener('abort', this.onAbort)
    this.options.reservation.release()
    this.options.slot.release()
    this.options.hooks.onClosed(this)
  }
}

/**
 * Without a status nobody knows whose fault it is: another node is asked, and this one is not
 * blamed alone.
 */
function refusalOf({ statusCode, retryAfterSeconds }: ImageFrame, words: string): DispatchError {
  return statusCode === null
    ? new DispatchError('node_refused', 'The node could not draw', {
        nodeMessage: words === '' ? null : words,
      })
    : faultError({ statusCode, retryAfterSeconds, message: words })
}
