import type { Inference } from '../registry/inferences-store.ts'
import { DispatchError } from './dispatch-error.ts'
import type { NodeLimits } from './limits.ts'
import type { Slot } from './offer.ts'
import type { Speed } from './speed.ts'

/**
 * How a run ended for its caller, who is told once. `left`: the caller went first; `abort` has the
 * signal's reason.
 */
export type RunResult =
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly error: DispatchError }
  | { readonly kind: 'left'; readonly abort: { readonly reason: unknown } | null }

/** What a run tells its hub; each at most once, in this order. */
export type RunEvent =
  | { readonly kind: 'opened' }
  /** The result stands. */
  | { readonly kind: 'settled'; readonly result: RunResult }
  /** The caller is done with it, but the node is not: it goes on into nothing. */
  | { readonly kind: 'draining' }
  /** It was drained as long as it may be: the slot is free, though the node may still be at it. */
  | { readonly kind: 'abandoned' }
  /**
   * The node finished an answer, whether or not its caller was still there. Not told of what was
   * refused as none.
   */
  | { readonly kind: 'served' }
  /** Over. The node may still send its last frame. */
  | { readonly kind: 'closed' }

export type RunOptions = {
  readonly id: string
  /** What it runs on, whose speed it shows. */
  readonly offer: { readonly model: string; speed: Speed }
  /** The run's own from now on. */
  readonly slot: Slot
  /** Who called; null for a probe. */
  readonly accountId: string | null
  readonly signal: AbortSignal
  /** A question of ours. */
  readonly isProbe: boolean
  /** Whether its node can be told to stop. */
  readonly isCancellable: boolean
  readonly limits: NodeLimits
  readonly now: () => number
  readonly emit: (run: Run, event: RunEvent) => void
}

/**
 * One call on one node, for chat or for images. `waiting`: before its first token, or its images.
 * `streaming`: chat alone. `draining`: nobody listens any more, the slot is kept. `abandoned`: the
 * slot is free, frames are still expected. `closed`.
 */
export abstract class Run {
  readonly options: RunOptions
  readonly startedAtMs: number
  /** How it ended for its caller; null until then. */
  result: RunResult | null = null
  /** Whether the frame came that ends a run; no other will. */
  hasFinalFrame = false
  protected phase: 'waiting' | 'streaming' | 'draining' | 'abandoned' | 'closed' = 'waiting'
  protected deadlineMs: number
  private readonly onAbort = () => this.leave({ reason: this.options.signal.reason })

  constructor(options: RunOptions, waitMs: number) {
    this.options = options
    this.startedAtMs = options.now()
    this.deadlineMs = this.startedAtMs + waitMs
    options.signal.addEventListener('abort', this.onAbort)
  }

  get id(): string {
    return this.options.id
  }

  /** Whether a caller, and no probe, still waits for the node. */
  isWaitedFor(): boolean {
    return this.result === null && this.phase !== 'closed' && !this.options.isProbe
  }

  /** Whether anything of an answer came. */
  abstract hasBegun(): boolean

  /** How fast the offer is, with this run in it. */
  abstract speedAfter(result: RunResult): Speed

  /** The row for a run that the node `nodeId` finished. */
  abstract inferenceOf(nodeId: string): Inference

  /**
   * Ends it at once, without waiting for the node: its connection is gone, or this process stops.
   */
  fail(error: DispatchError): void {
    this.settle({ kind: 'failed', error })
    this.close()
  }

  /** Acts when a deadline has passed. */
  check(nowMs: number): void {
    if (nowMs < this.deadlineMs) return
    if (this.phase === 'draining') this.abandon()
    else if (this.phase === 'abandoned') this.close()
    else if (this.phase !== 'closed') this.giveUp(nowMs)
  }

  /** A deadline has passed before the caller had all. */
  protected abstract giveUp(nowMs: number): void
  /** Tells the caller. */
  protected abstract tell(result: RunResult): void
  /** Until when its slot is kept after nobody listens any more. */
  protected abstract drainUntilMs(): number
  /** It was drained that long: tells so, and gives the slot back. */
  protected abstract abandon(): void

  protected emit(event: RunEvent): void {
    this.options.emit(this, event)
  }

  protected settle(result: RunResult): void {
    if (this.result !== null) return
    this.result = result
    this.options.signal.removeEventListener('abort', this.onAbort)
    this.tell(result)
    this.emit({ kind: 'settled', result })
  }

  protected failAndDrain(
    code:
      | 'first_token_timeout'
      | 'token_timeout'
      | 'node_failed'
      | 'caller_too_slow'
      | 'answer_too_large',
    message: string,
    details: { readonly isGatewaysJudgement?: boolean } = {},
  ): void {
    this.endEarly({ kind: 'failed', error: new DispatchError(code, message, details) })
  }

  protected leave(abort: { readonly reason: unknown } | null): void {
    this.endEarly({ kind: 'left', abort })
  }

  protected close(): void {
    if (this.phase === 'closed') return
    this.phase = 'closed'
    this.options.signal.removeEventListener('abort', this.onAbort)
    this.release()
    this.emit({ kind: 'closed' })
  }

  /** Gives back what was set aside for it. */
  protected release(): void {
    this.options.slot.release()
  }

  private endEarly(result: RunResult): void {
    if (this.result !== null) return
    this.settle(result)
    this.phase = 'draining'
    this.deadlineMs = this.drainUntilMs()
    this.emit({ kind: 'draining' })
  }
}
