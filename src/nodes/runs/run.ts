import type { Inference } from '../registry/inferences-store.ts'
import { DispatchError } from './dispatch-error.ts'
import type { NodeLimits } from './limits.ts'
import type { NodeSlot } from './offer.ts'
import type { Speed } from './speed.ts'

/** Each caller gets one result. `left`: the caller left early. `abort` has the signal's reason. */
export type RunResult =
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly error: DispatchError }
  | { readonly kind: 'left'; readonly abort: { readonly reason: unknown } | null }

/** Reported in this order, each at most once. */
export type RunEvent =
  | { readonly kind: 'opened' }
  | { readonly kind: 'settled'; readonly result: RunResult }
  /** The caller has its result. The gateway discards the frames that the node still sends. */
  | { readonly kind: 'draining' }
  /** The run has drained for the longest allowed time. Its slot is free. */
  | { readonly kind: 'abandoned' }
  /** The gateway accepted the node's whole answer, even if the caller has left. */
  | { readonly kind: 'served' }
  /** The run has ended. The node may still send its last frame. */
  | { readonly kind: 'closed' }

export type RunOptions = {
  readonly id: string
  /** The run measures this offer's speed. */
  readonly offer: { readonly model: string; speed: Speed }
  /** The run releases this slot. */
  readonly slot: NodeSlot
  /** Null for a probe. */
  readonly accountId: string | null
  readonly signal: AbortSignal
  readonly isProbe: boolean
  /** True if the run's node understands a cancel frame. */
  readonly isCancellable: boolean
  readonly limits: NodeLimits
  readonly now: () => number
  readonly emit: (run: Run, event: RunEvent) => void
}

/**
 * One call on one node, for chat or for images. A run is `waiting` for the first token or image,
 * then `streaming` (only for chat), then `draining` (the caller has its result, and the run keeps
 * the slot) or `abandoned` (the slot is free, and the node may still send frames).
 */
export abstract class Run {
  readonly options: RunOptions
  readonly startedAtMs: number
  /** Null until the run has ended for the caller. */
  result: RunResult | null = null
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

  /** True if a caller still waits for the node. False for a probe. */
  isWaitedFor(): boolean {
    return this.result === null && this.phase !== 'closed' && !this.options.isProbe
  }

  abstract hasBegun(): boolean

  /** The offer's speed, including this run. */
  abstract speedAfter(result: RunResult): Speed

  abstract inferenceOf(nodeId: string): Inference

  /** Ends the run without waiting for the node, because the connection or this process ends. */
  fail(error: DispatchError): void {
    this.settle({ kind: 'failed', error })
    this.close()
  }

  check(nowMs: number): void {
    if (nowMs < this.deadlineMs) return
    if (this.phase === 'draining') this.abandon()
    else if (this.phase === 'abandoned') this.close()
    else if (this.phase !== 'closed') this.giveUp(nowMs)
  }

  /** Called when a deadline has passed before the caller had the whole answer. */
  protected abstract giveUp(nowMs: number): void
  protected abstract deliver(result: RunResult): void
  /** A draining run keeps its slot until this time. */
  protected abstract drainUntilMs(): number
  /** Emits `abandoned`, and releases the slot. */
  protected abstract abandon(): void

  protected emit(event: RunEvent): void {
    this.options.emit(this, event)
  }

  protected settle(result: RunResult): void {
    if (this.result !== null) return
    this.result = result
    this.options.signal.removeEventListener('abort', this.onAbort)
    this.deliver(result)
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
