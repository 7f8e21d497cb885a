import { FormatError } from '../../attestation/errors.ts'
import type { JsonObject } from '../../attestation/json/value.ts'
import { type ChunkFacts, readChunk } from './chunk-facts.ts'
import { type ChunkBatch, createChunkQueue } from './chunk-queue.ts'
import { type AnswerReader, DispatchError } from './dispatcher.ts'
import { faultError } from './fault-error.ts'
import type { NodeFrame } from './frames.ts'
import type { NodeLimits } from './limits.ts'
import type { RunTimes } from './measurements.ts'
import type { Lane } from './node-index.ts'
import type { Slot } from './slots.ts'
import { boundUsage } from './usage-claim.ts'

/** How a run ended for its caller, who is told once. `left`: the caller went first. */
export type RunResult =
  | { readonly kind: 'done' }
  | { readonly kind: 'failed'; readonly error: DispatchError }
  | { readonly kind: 'left' }

/** What a run tells its connection; each at most once, in this order. */
export type RunHooks = {
  /** The result stands. */
  onSettled(run: NodeRun, result: RunResult): void
  /** The caller is done with it, but the node is not: it goes on streaming into nothing. */
  onDraining(run: NodeRun): void
  /** It was drained for `drainMs`: the slot is free, though the node may still be at it. */
  onAbandoned(run: NodeRun): void
  /** The node finished an answer, whether or not its caller was still there. Not told of what was refused as none. */
  onServed(run: NodeRun): void
  /** Over. The node may still send its last frame. */
  onClosed(run: NodeRun): void
}

export type RunOptions = {
  readonly id: string
  readonly lane: Lane
  /** Who called; null for a probe. */
  readonly accountId: string | null
  /** Size of the request, UTF-8. */
  readonly requestBytes: number
  /** The most that its prompt can have. */
  readonly promptTokensMax: number
  /** How many choices it asks for: `n`. */
  readonly choices: number
  readonly slot: Slot
  readonly signal: AbortSignal
  /** What judges the answer; null: nothing beyond the shape of its chunks. */
  readonly reader: AnswerReader | null
  /** A question of ours. */
  readonly isProbe: boolean
  readonly limits: NodeLimits
  readonly now: () => number
  readonly hooks: RunHooks
}

type RunFrame = Extract<NodeFrame, { readonly kind: 'run' }>

/**
 * One call on one node. `waiting`: before its first token. `streaming`. `draining`: nobody listens any more, the slot is
 * kept. `abandoned`: the slot is free, frames are still expected. `closed`.
 */
export class NodeRun {
  readonly options: RunOptions
  /** Resolves at the first token; rejects with DispatchError, or the signal's reason. */
  readonly firstToken: Promise<void>
  readonly startedAtMs: number
  /** The node's claim, made plausible; null until it came. */
  usage: JsonObject | null = null
  textLength = 0
  tokenChunks = 0
  /** Whether the frame came that ends a run for newer clients; no other will. */
  hasFinalFrame = false
  /** How it ended for its caller; null until then. */
  result: RunResult | null = null
  private phase: 'waiting' | 'streaming' | 'draining' | 'abandoned' | 'closed' = 'waiting'
  private deadlineMs: number
  private bytes = 0
  private firstTokenAtMs: number | null = null
  private lastTokenAtMs = 0
  private firstTextLength = 0
  private readonly unfinished: Set<number>
  private readonly first = Promise.withResolvers<void>()
  private readonly queue = createChunkQueue(() => this.leave(null))
  private readonly onAbort = () => this.leave({ reason: this.options.signal.reason })

  constructor(options: RunOptions) {
    this.options = options
    this.startedAtMs = options.now()
    this.deadlineMs = this.startedAtMs + options.limits.firstTokenMs
    this.unfinished = new Set(Array.from({ length: options.choices }, (_, index) => index))
    this.firstToken = this.first.promise
    // A caller who left does not await it.
    this.firstToken.catch(() => {})
    options.signal.addEventListener('abort', this.onAbort)
  }

  get id(): string {
    return this.options.id
  }

  get batches(): AsyncIterable<ChunkBatch> {
    return this.queue.batches
  }

  /** When its tokens came, or null when there was none. */
  times(): RunTimes | null {
    const { startedAtMs, firstTokenAtMs, lastTokenAtMs } = this
    if (firstTokenAtMs === null) return null
    return {
      startedAtMs,
      firstTokenAtMs,
      lastTokenAtMs,
      laterTextLength: this.textLength - this.firstTextLength,
    }
  }

  /** Takes a frame of this run. False when the node sent more than a run may have. */
  receive(frame: RunFrame, bytes: number): boolean {
    if (this.phase === 'closed') return true
    this.bytes += bytes
    if (this.bytes > this.options.limits.answerBytesMax) return false
    this.hasFinalFrame = frame.status === 'done' || frame.status === 'failed'
    if (frame.fault !== null || frame.status === 'failed') {
      this.settle({ kind: 'failed', error: faultError(frame.fault) })
      this.close()
      return true
    }
    if (frame.chunk !== null) this.takeChunk(frame.chunk, bytes)
    if (frame.status === 'done') this.finish()
    return true
  }

  /** Ends it at once, without waiting for the node: its connection is gone, or this process stops. */
  fail(error: DispatchError): void {
    this.settle({ kind: 'failed', error })
    this.close()
  }

  /** Acts when a deadline has passed. */
  check(nowMs: number): void {
    if (nowMs < this.deadlineMs) return
    if (this.phase === 'waiting') this.failAndDrain('first_token_timeout', 'The node sent no token in time')
    else if (this.phase === 'streaming') this.endStream(nowMs)
    else if (this.phase === 'draining') this.abandon()
    else this.close()
  }

  /** A finished answer whose usage does not come is done all the same. */
  private endStream(nowMs: number): void {
    if (this.unfinished.size === 0) this.finish()
    else if (nowMs >= this.startedAtMs + this.options.limits.runMs)
      this.failAndDrain('node_failed', 'The node did not end its answer in time')
    else this.failAndDrain('token_timeout', 'The node stopped sending tokens')
  }

  private abandon(): void {
    const { limits, slot, hooks } = this.options
    this.phase = 'abandoned'
    this.deadlineMs = this.startedAtMs + limits.runMs
    slot.release()
    hooks.onAbandoned(this)
  }

  private takeChunk(chunk: JsonObject, bytes: number): void {
    const { limits, promptTokensMax } = this.options
    const facts = readChunk(chunk, limits.chunkDepthMax)
    if (facts === null) {
      this.failAndDrain('node_failed', 'The node sent what is no chunk')
      return
    }
    if (facts.isToken) this.tokenChunks++
    this.textLength += facts.textLength
    if (facts.usage !== undefined)
      this.usage = boundUsage(facts.usage, {
        promptTokensMax,
        textLength: this.textLength,
        tokenChunks: this.tokenChunks,
      })
    if (this.result === null) {
      this.give(facts.usage === undefined ? chunk : { ...chunk, usage: this.usage }, bytes)
      if (this.queue.waitingBytes() > limits.queueBytesMax) this.overflow()
      if (this.queue.silentBytes() > limits.queueBytesMax)
        this.failAndDrain('node_failed', 'The node sent too much that says nothing')
    }
    if (facts.isToken) this.noteToken(facts)
    if (facts.isUsageOnly) this.finish()
  }

  private give(chunk: JsonObject, bytes: number): void {
    const { reader } = this.options
    const read = reader === null ? [chunk] : this.judge(() => reader.push(chunk))
    if (read !== null) this.queue.push(read, bytes)
  }

  /** What the reader says, or null after it has refused the answer. */
  private judge<Read>(read: () => Read): Read | null {
    try {
      return read()
    } catch (error) {
      if (!(error instanceof FormatError)) throw error
      this.failAndDrain('node_failed', `The node sent what is no answer: ${error.message}`)
      return null
    }
  }

  private noteToken({ textLength, finished }: ChunkFacts): void {
    const { limits, now } = this.options
    this.lastTokenAtMs = now()
    for (const index of finished) this.unfinished.delete(index)
    if (this.firstTokenAtMs === null) {
      this.firstTokenAtMs = this.lastTokenAtMs
      this.firstTextLength = textLength
    }
    if (this.phase === 'waiting') {
      this.phase = 'streaming'
      this.first.resolve()
    }
    if (this.phase !== 'streaming') return
    const graceMs = this.unfinished.size === 0 ? limits.finishGraceMs : limits.tokenMs
    this.deadlineMs = Math.min(this.lastTokenAtMs + graceMs, this.startedAtMs + limits.runMs)
  }

  /** A slow reader is no fault of the node; one that sends this much before its first token is. */
  private overflow(): void {
    if (this.phase === 'waiting')
      this.failAndDrain('node_failed', 'The node sent too much before its first token')
    else this.failAndDrain('caller_too_slow', 'The answer was read too slowly')
  }

  /** The node says it is done. Without any token, that is no answer. */
  private finish(): void {
    // The frame of the usage may say so once more.
    if (this.phase === 'closed') return
    if (this.firstTokenAtMs === null)
      this.settle({
        kind: 'failed',
        error: new DispatchError('node_failed', 'The node ended without an answer'),
      })
    else this.conclude()
    this.close()
  }

  private conclude(): void {
    const finish = () => {
      this.options.reader?.finish()
      return true
    }
    if (this.result === null && this.judge(finish) === null) return
    this.settle({ kind: 'done' })
    const { result } = this
    if (result?.kind === 'failed' && result.error.code === 'node_failed') return
    this.options.hooks.onServed(this)
  }

  private failAndDrain(
    code: 'first_token_timeout' | 'token_timeout' | 'node_failed' | 'caller_too_slow',
    message: string,
  ): void {
    if (this.result !== null) return
    this.settle({ kind: 'failed', error: new DispatchError(code, message) })
    this.drain()
  }

  private leave(abort: { readonly reason: unknown } | null): void {
    if (this.result !== null) return
    if (abort !== null) this.queue.discard(abort.reason)
    this.first.reject(abort?.reason)
    this.settle({ kind: 'left' })
    this.drain()
  }

  private drain(): void {
    this.phase = 'draining'
    const { now, limits, hooks } = this.options
    this.deadlineMs = now() + limits.drainMs
    hooks.onDraining(this)
  }

  private settle(result: RunResult): void {
    if (this.result !== null) return
    this.result = result
    this.options.signal.removeEventListener('abort', this.onAbort)
    const error = result.kind === 'failed' ? result.error : null
    if (error !== null) this.first.reject(error)
    this.queue.end(error)
    this.options.hooks.onSettled(this, result)
  }

  private close(): void {
    if (this.phase === 'closed') return
    this.phase = 'closed'
    this.options.slot.release()
    this.options.hooks.onClosed(this)
  }
}
