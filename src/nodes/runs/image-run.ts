import { type ImageRequest, type ImageRunFrame, NOTHING_STATED } from '../protocol/frames.ts'
import type { Inference } from '../registry/inferences-store.ts'
import { DispatchError, faultError } from './dispatch-error.ts'
import type { ImageReservation } from './image-memory.ts'
import { Run, type RunOptions, type RunResult } from './run.ts'
import { type Speed, speedAfterDrawing } from './speed.ts'

export type ImageRunOptions = RunOptions & {
  readonly request: ImageRequest
  readonly reservation: ImageReservation
}

/** Keeps the slot and the memory while the node draws, even if the caller has left. */
export class ImageRun extends Run {
  declare readonly options: ImageRunOptions
  /** The images, unchecked. Rejects with DispatchError, or the signal's reason. */
  readonly answer: Promise<readonly string[]>
  private readonly outcome = Promise.withResolvers<readonly string[]>()

  constructor(options: ImageRunOptions) {
    super(options, options.limits.imageMs)
    this.answer = this.outcome.promise
    // Without this handler, a rejection after the caller has left would be unhandled.
    this.answer.catch(() => {})
  }

  /** The images become the result only when `conclude` accepts them. */
  receive(frame: ImageRunFrame): void {
    this.hasFinalFrame = true
    const { images, error } = frame
    if (error !== null) this.settle({ kind: 'failed', error: refusalOf(frame, error) })
    else if (images === null)
      this.settle({
        kind: 'failed',
        error: new DispatchError('node_failed', 'The node sent no images'),
      })
    else this.outcome.resolve(images)
    this.close()
  }

  /** Ends the run after the check of its images. A null error means that they are as requested. */
  conclude(error: DispatchError | null): void {
    this.settle(error === null ? { kind: 'done' } : { kind: 'failed', error })
    if (error === null) this.emit({ kind: 'served' })
  }

  hasBegun(): boolean {
    return false
  }

  speedAfter({ kind }: RunResult): Speed {
    const { offer, now, request } = this.options
    return kind === 'done'
      ? speedAfterDrawing(offer.speed, (now() - this.startedAtMs) / request.n)
      : offer.speed
  }

  /** An answer with images has no tokens, and so no time of a first token. */
  inferenceOf(nodeId: string): Inference {
    const { id, accountId, offer, now } = this.options
    return {
      id,
      nodeId,
      accountId,
      model: offer.model,
      promptTokens: 0,
      completionTokens: 0,
      totalTokens: 0,
      timeToFirstTokenMs: null,
      createdAt: Math.floor(now() / 1000),
    }
  }

  protected giveUp(): void {
    this.failAndDrain('first_token_timeout', 'The node sent no images in time')
  }

  protected deliver(result: RunResult): void {
    if (result.kind === 'failed') this.outcome.reject(result.error)
    if (result.kind === 'left') this.outcome.reject(result.abort?.reason)
  }

  protected drainUntilMs(): number {
    const { imageMs, drainMs } = this.options.limits
    return this.startedAtMs + imageMs + drainMs
  }

  protected abandon(): void {
    this.emit({ kind: 'abandoned' })
    this.close()
  }

  protected override release(): void {
    this.options.reservation.release()
    super.release()
  }
}

/** Without a status, the cause is unknown, so another node must confirm the refusal. */
function refusalOf({ statusCode, retryAfterSeconds }: ImageRunFrame, words: string): DispatchError {
  return statusCode === null
    ? new DispatchError('node_refused', 'The node could not make the images', {
        nodeMessage: words === '' ? null : words,
      })
    : faultError({ statusCode, retryAfterSeconds, message: words, stated: NOTHING_STATED })
}
