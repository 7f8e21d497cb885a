import { FormatError } from '#attestation/errors.ts'
import { type JsonObject, memberOf } from '#attestation/json/value.ts'
import type { NodeDialect } from '../protocol/dialects.ts'
import { type ChatRunFrame, chatFrame } from '../protocol/frames.ts'
import type { Inference } from '../registry/inferences-store.ts'
import { type ChunkBatch, createChunkQueue } from './chunk-queue.ts'
import { DispatchError, faultError } from './dispatch-error.ts'
import { EventPieces } from './event-pieces.ts'
import { type ChunkFacts, readChunk } from './read-chunk.ts'
import { type EventFacts, openEventFacts } from './read-event.ts'
import { Run, type RunOptions, type RunResult } from './run.ts'
import {
  type RunTimes,
  type Speed,
  speedAfter,
  speedAfterSilence,
  TEXT_LENGTH_PER_TOKEN,
} from './speed.ts'
import { boundUsage, mediaBytesOf, promptTokensMax } from './usage-claim.ts'

/**
 * Checks a node's answer. Both methods throw FormatError for a malformed answer. The node has then
 * failed. Before the first token, the call continues with another node.
 */
export type AnswerReader = {
  /** Returns the chunks that are sent instead of the node's chunk. */
  push(chunk: JsonObject): readonly JsonObject[]
  /** The node reports that its answer is complete. */
  finish(): void
}

/** A chat request in the form for nodes. Its text is made once, for all tries. */
export type ChatQuestion = {
  readonly request: JsonObject
  /** Upper limit of the frame's size in UTF-8. */
  readonly frameBytes: number
  readonly frameOf: (id: string, traceparent: string | null) => string
  /** Size in UTF-8, without pictures and sounds. */
  readonly requestBytes: number
  readonly promptTokensMax: number
  /** The request's `n`. */
  readonly choices: number
  /** Null for chat completions. A node always streams chat completions. */
  readonly dialect: NodeDialect | null
  /** True if the node answers only when the whole answer is made. */
  readonly isWhole: boolean
}

export function askChat(
  model: string,
  request: JsonObject,
  dialect: NodeDialect | null = null,
): ChatQuestion {
  const { requestBytes: bytes, frameBytes, frameOf } = chatFrame(model, request, dialect)
  const requestBytes = Math.max(0, bytes - mediaBytesOf(request))
  return {
    request,
    frameBytes,
    frameOf,
    requestBytes,
    promptTokensMax: promptTokensMax(request, requestBytes),
    choices: dialect === null && typeof request.n === 'number' ? request.n : 1,
    dialect,
    isWhole: dialect !== null && request.stream !== true,
  }
}

export type ChatRunOptions = RunOptions & {
  readonly question: Omit<ChatQuestion, 'request' | 'frameBytes' | 'frameOf'>
  /** Null: only the form of the chunks is checked. An abandoned run drops its reader. */
  reader: AnswerReader | null
}

export class ChatRun extends Run {
  declare readonly options: ChatRunOptions
  /** Resolves at the first token. Rejects with DispatchError, or the signal's reason. */
  readonly firstToken: Promise<void>
  /** The node's claim, limited to plausible values. */
  private usage: JsonObject | null = null
  private textLength = 0
  private tokenChunks = 0
  private bytes = 0
  /** `sinceMs`: when the caller got its result. `bytes`: size of the frames after this time. */
  private late = { sinceMs: 0, bytes: 0 }
  private firstTokenAtMs: number | null = null
  /** The backend reported a failure before any text, perhaps after the caller had left. */
  private hasFailedEarly = false
  private lastTokenAtMs = 0
  private firstTextLength = 0
  private readonly unfinished: Set<number>
  /** Null for chat completions. */
  private readonly events: EventFacts | null
  private readonly pieces = new EventPieces()
  /** Frames of the largest event that came in pieces, bytes. It may wait besides the queue. */
  private largestBytes = 0
  private readonly first = Promise.withResolvers<void>()
  private readonly queue = createChunkQueue(() => this.leave(null))

  constructor(options: ChatRunOptions) {
    const { limits, question } = options
    super(options, question.isWhole ? limits.runMs : limits.firstTokenMs)
    this.events =
      question.dialect === null ? null : openEventFacts(question.dialect, question.isWhole)
    this.unfinished = new Set(Array.from({ length: question.choices }, (_, index) => index))
    this.firstToken = this.first.promise
    // If the caller has left, no other code handles a rejection of `firstToken`.
    this.firstToken.catch(() => {})
  }

  get batches(): AsyncIterable<ChunkBatch> {
    return this.queue.batches
  }

  /** Null when no token arrived, and for a whole answer, whose tokens arrive together. */
  times(): RunTimes | null {
    const { startedAtMs, firstTokenAtMs, lastTokenAtMs } = this
    if (firstTokenAtMs === null || this.options.question.isWhole) return null
    return {
      startedAtMs,
      firstTokenAtMs,
      lastTokenAtMs,
      laterTextLength: this.textLength - this.firstTextLength,
    }
  }

  /** False if the node sends more than the allowed number of bytes after the run's end. */
  receive(frame: ChatRunFrame, bytes: number): boolean {
    if (this.phase === 'closed') return true
    if (!this.measure(bytes)) return false
    this.hasFinalFrame = frame.status === 'done' || frame.status === 'failed'
    if (frame.fault !== null || frame.status === 'failed') {
      this.settle({ kind: 'failed', error: faultError(frame.fault) })
      this.close()
      return true
    }
    if (frame.chunk !== null) this.join(frame.chunk, frame.status, bytes)
    else if (frame.status === 'running') this.takeWork()
    if (frame.status === 'done') this.finish()
    return true
  }

  /** An answer that is too large ends only its own run, because its caller chose the length. */
  private measure(bytes: number): boolean {
    if (this.result !== null) {
      this.late.bytes += bytes
      return this.late.bytes <= this.lateBytesMax()
    }
    const { answerBytesMax } = this.options.limits
    this.bytes += bytes
    if (this.bytes > answerBytesMax) this.failAndDrain('answer_too_large', tooLarge(answerBytesMax))
    return true
  }

  private lateBytesMax(): number {
    const { isCancellable, limits, now } = this.options
    if (isCancellable) return limits.lateBytesMax
    const seconds = (now() - this.late.sinceMs) / 1000
    return limits.answerBytesMax + seconds * limits.lateBytesPerSecond
  }

  hasBegun(): boolean {
    return this.firstTokenAtMs !== null
  }

  speedAfter({ kind }: RunResult): Speed {
    const { offer, now } = this.options
    const times = this.times()
    if (kind === 'done') return times === null ? offer.speed : speedAfter(offer.speed, times)
    return times === null ? speedAfterSilence(offer.speed, now() - this.startedAtMs) : offer.speed
  }

  /**
   * If the node reports no usage, token counts are estimated from the sizes of request and answer.
   */
  inferenceOf(nodeId: string): Inference {
    const { id, accountId, offer, question, now } = this.options
    const promptTokens = count(this.usage, 'prompt_tokens') ?? estimate(question.requestBytes)
    const completionTokens = count(this.usage, 'completion_tokens') ?? estimate(this.textLength)
    const times = this.times()
    return {
      id,
      nodeId,
      accountId,
      model: offer.model,
      promptTokens,
      completionTokens,
      totalTokens: promptTokens + completionTokens,
      timeToFirstTokenMs:
        times === null ? null : Math.round(times.firstTokenAtMs - times.startedAtMs),
      createdAt: Math.floor(now() / 1000),
    }
  }

  protected giveUp(nowMs: number): void {
    if (this.phase === 'waiting')
      this.failAndDrain('first_token_timeout', 'The node sent no token in time')
    else this.endStream(nowMs)
  }

  protected deliver(result: RunResult): void {
    this.pieces.drop()
    const error = result.kind === 'failed' ? result.error : null
    this.late = { sinceMs: this.options.now(), bytes: 0 }
    if (result.kind === 'left') {
      if (result.abort !== null) this.queue.discard(result.abort.reason)
      this.first.reject(result.abort?.reason)
    } else if (error !== null) this.first.reject(error)
    this.queue.end(error)
  }

  protected drainUntilMs(): number {
    const { now, limits } = this.options
    return now() + limits.drainMs
  }

  protected abandon(): void {
    this.phase = 'abandoned'
    this.deadlineMs = this.startedAtMs + this.options.limits.runMs
    // A node can have many abandoned runs, so they hold no parts of answers.
    this.events?.dropBody()
    this.options.reader = null
    this.release()
    this.emit({ kind: 'abandoned' })
  }

  /** The answer is complete when all choices are finished, even if its usage never arrives. */
  private endStream(nowMs: number): void {
    if (this.unfinished.size === 0) this.finish()
    else if (nowMs >= this.startedAtMs + this.options.limits.runMs)
      this.failAndDrain('node_failed', 'The node did not end its answer in time')
    else this.failAndDrain('token_timeout', 'The node stopped sending tokens')
  }

  /** Takes an event that comes in pieces when it is complete. */
  private join(chunk: JsonObject, status: ChatRunFrame['status'], bytes: number): void {
    if (this.events === null) {
      this.takeChunk(chunk, status, bytes)
      return
    }
    const joined = this.pieces.push(chunk, bytes)
    if (joined.kind === 'refused') this.refuse(joined.why)
    else if (joined.kind === 'open') this.takeWork()
    else {
      if (joined.chunk !== chunk) this.largestBytes = Math.max(this.largestBytes, joined.bytes)
      this.takeChunk(joined.chunk, status, joined.bytes)
    }
  }

  private takeChunk(chunk: JsonObject, status: ChatRunFrame['status'], bytes: number): void {
    const { limits, question } = this.options
    const facts =
      this.events === null ? readChunk(chunk, limits.chunkDepthMax) : this.events.read(chunk)
    if (facts === null) {
      this.refuse('expected a chunk')
      return
    }
    if (facts.isFailure && this.firstTokenAtMs === null) {
      this.hasFailedEarly = true
      this.refuse('its backend reported a failure')
      return
    }
    if (facts.isToken) this.tokenChunks++
    this.textLength += facts.textLength
    if (facts.usage !== undefined)
      this.usage = boundUsage(facts.usage, {
        promptTokensMax: question.promptTokensMax,
        textLength: this.textLength,
        tokenChunks: this.tokenChunks,
      })
    if (this.result === null) {
      this.give(this.withUsage(chunk, facts), bytes)
      if (this.queue.waitingBytes() > limits.queueBytesMax + this.largestBytes) this.overflow()
      if (this.queue.silentBytes() > limits.queueBytesMax)
        this.failAndDrain('node_failed', 'The node sent too many empty chunks')
    }
    if (facts.isToken) this.takeToken(facts)
    // Some backends also send usage before the end. Only old clients report no other end.
    if (facts.isUsageOnly && (status === 'none' || this.unfinished.size === 0)) this.finish()
  }

  /**
   * Replaces the node's claim by the limited claim. A dialect's claim is inside its event or body,
   * so a node's own `usage` beside them is removed.
   */
  private withUsage(chunk: JsonObject, { usage }: ChunkFacts): JsonObject {
    if (usage !== undefined) return { ...chunk, usage: this.usage }
    return this.options.question.dialect === null ? chunk : { ...chunk, usage: null }
  }

  private give(chunk: JsonObject, bytes: number): void {
    const { reader } = this.options
    const read = reader === null ? [chunk] : this.judge(() => reader.push(chunk))
    if (read !== null) this.queue.push(read, bytes)
  }

  /** Null when the reader has refused the answer. */
  private judge<Read>(read: () => Read): Read | null {
    try {
      return read()
    } catch (error) {
      if (!(error instanceof FormatError)) throw error
      this.refuse(error.message)
      return null
    }
  }

  private refuse(why: string): void {
    this.failAndDrain('node_failed', `The gateway refused the node's answer: ${why}`, {
      isGatewaysJudgement: true,
    })
  }

  /** The node says that its backend still works. */
  private takeWork(): void {
    const { limits, now, question } = this.options
    const isWaiting = this.phase === 'waiting' && !question.isWhole
    if (!isWaiting && this.phase !== 'streaming') return
    const pauseMs = isWaiting ? limits.firstTokenMs : limits.tokenMs
    const latestMs = this.startedAtMs + (isWaiting ? limits.prefillMs : limits.runMs)
    this.deadlineMs = Math.max(this.deadlineMs, Math.min(now() + pauseMs, latestMs))
  }

  private takeToken({ textLength, finished }: ChunkFacts): void {
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

  /**
   * Ends the run: the node sent too much before its first token, or the caller reads too slowly.
   */
  private overflow(): void {
    if (this.phase === 'waiting')
      this.failAndDrain('node_failed', 'The node sent too much data before its first token')
    else this.failAndDrain('caller_too_slow', 'The caller read the answer too slowly')
  }

  /** A run that ends without any token has failed. */
  private finish(): void {
    // The usage frame and the final frame may both report the end. The first report counts.
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
      if (this.pieces.isOpen())
        throw new FormatError('other', 'expected the last piece of an event')
      this.options.reader?.finish()
      return true
    }
    if (this.result === null && this.judge(finish) === null) return
    this.settle({ kind: 'done' })
    const { result } = this
    if (result?.kind === 'failed' && result.error.code === 'node_failed') return
    if (this.hasFailedEarly) return
    this.emit({ kind: 'served' })
  }
}

function count(usage: JsonObject | null, name: string): number | null {
  const value = usage === null ? undefined : memberOf(usage, name)
  return typeof value === 'number' ? value : null
}

function tooLarge(bytesMax: number): string {
  return `The answer is larger than the ${bytesMax} bytes of frames that one call may have: ask for fewer choices (n), tokens or logprobs`
}

function estimate(length: number): number {
  return Math.ceil(length / TEXT_LENGTH_PER_TOKEN)
}
