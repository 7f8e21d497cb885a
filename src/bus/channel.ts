import { concatBytes } from '../../attestation/bytes.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'

/**
 * A channel is two streams of messages between two gateways, one each way, over a transport that
 * may lose what it carries and has no back-pressure. A frame is a byte for its kind, four for its
 * number (big-endian, from 0 in each direction), and a body. A frame that is missing, or comes
 * twice, ends the channel: nothing is repeated. That the last frame is missing shows when the other
 * side says how many it has sent (`check`).
 */

const KINDS = {
  /** A part of a message, more follow. */
  part: 0,
  /** The last part of a message. */
  last: 1,
  /** How many bytes more the other side may send: four bytes. */
  credit: 2,
  /** Nothing more comes from this side. */
  end: 3,
  /** The channel is over; why, as JSON. */
  abort: 4,
} as const

type Kind = (typeof KINDS)[keyof typeof KINDS]

const HEAD_BYTES = 5
/** Bytes in one frame: servers of NATS take 1 MiB by default, and others' messages pass between. */
export const PART_BYTES_MAX = 64 * 1024
/** What a frame counts for beside its bytes: an empty frame takes memory too. */
export const FRAME_COST = 256
/**
 * Bytes that may be under way to a reader who does not read, and one frame more. A server cuts off
 * a gateway for which 64 MiB wait (NATS's default): 256 calls whose readers do not read come to
 * that.
 */
export const WINDOW_BYTES = 4 * PART_BYTES_MAX
/** A message: a chat request in a large frame, or an image. */
export const MESSAGE_BYTES_MAX = 48 * 1024 * 1024
const ABORT_BYTES_MAX = 16 * 1024

export type ChannelErrorCode =
  /** The other side ended it, and says why in `detail`. */
  | 'aborted'
  /** The other side is gone, or a frame is. */
  | 'lost'

/** Why a channel ended before its end. */
export class ChannelError extends Error {
  override readonly name = 'ChannelError'
  readonly code: ChannelErrorCode
  /** What the other side said, a JSON value; null unless it was aborted. */
  readonly detail: unknown

  constructor(code: ChannelErrorCode, message: string, detail: unknown = null) {
    super(message)
    this.code = code
    this.detail = detail
  }
}

/** One side of a channel. */
export type Channel = {
  /** The gateway at its other end. */
  readonly peer: string
  /**
   * What the other side sent, whole and in order; ends when that side does, or throws ChannelError
   * after what came before. To be iterated once; who leaves it early aborts the channel.
   */
  readonly messages: AsyncIterable<Uint8Array>
  /** Aborted, with the ChannelError, when the channel ends before its end. */
  readonly signal: AbortSignal
  /** Resolves when the message is on its way; waits for the reader. Throws ChannelError. */
  send(message: Uint8Array): Promise<void>
  /** Says that nothing more comes from here, after what was sent. */
  end(): Promise<void>
  /** Ends it at once; the other side gets `detail`, a JSON value. */
  abort(detail: unknown): void
}

/** A channel, and what its transport does with it. */
export type OpenChannel = Channel & {
  /** Takes a frame that came for it. */
  receive(frame: Uint8Array): void
  /** The other side can no longer be reached. It is sent `why`, in case that still arrives. */
  lose(why: string): void
  /** Whether nothing more is sent from here. */
  isEnded(): boolean
  /** Frames that were sent. */
  sent(): number
  /**
   * Takes the `sent` of the other side, which comes now and then. A frame that is not here when it
   * comes again is lost.
   */
  check(sent: number): void
}

/** Gives one side of a channel. */
export function createChannel(options: {
  readonly peer: string
  /** Sends a frame, or drops it: the receiver finds that a frame is missing. */
  readonly publish: (frame: Uint8Array) => void
  /**
   * Called with how many bytes more, or fewer, wait for the reader; false when that is too much.
   * Default: never.
   */
  readonly hold?: (bytes: number) => boolean
  /** Of what is sent here; at most, and by default, PART_BYTES_MAX. */
  readonly partBytesMax?: number
  /** Called once, when the channel is over in both directions. */
  readonly onOver: () => void
}): OpenChannel {
  return new FramedChannel(options)
}

class FramedChannel implements OpenChannel {
  readonly peer: string
  readonly messages: AsyncIterable<Uint8Array>
  private readonly options: Parameters<typeof createChannel>[0]
  private readonly ending = new AbortController()
  private readonly sending = createSerialQueue()
  private sentFrames = 0
  private takenFrames = 0
  /** Bytes that the other side takes; below 0 after the last frame, which may be longer. */
  private credit = WINDOW_BYTES
  /** The same for the other direction, as the other side knows it soon. */
  private granted = WINDOW_BYTES
  private moreCredit = Promise.withResolvers<void>()
  /** Bytes that were read, and not reported yet. */
  private owedCredit = 0
  private parts: Uint8Array[] = []
  private messageBytes = 0
  /** What the message that comes has cost, and was not given back yet. */
  private partsCost = 0
  /** Bytes that wait for the reader. */
  private heldBytes = 0
  /** What the other side had sent when it last said so. */
  private reportedFrames = 0
  private isReading = false
  private readonly waiting: { readonly message: Uint8Array; readonly cost: number }[] = []
  private news = Promise.withResolvers<void>()
  private hasEnded = false
  private hasPeerEnded = false
  /** Ended here: what came before is no longer of use. */
  private isDropped = false
  private isOver = false

  constructor(options: Parameters<typeof createChannel>[0]) {
    this.options = options
    this.peer = options.peer
    this.messages = this.read()
  }

  get signal(): AbortSignal {
    return this.ending.signal
  }

  send(message: Uint8Array): Promise<void> {
    const { partBytesMax = PART_BYTES_MAX } = this.options
    return this.sending.run(async () => {
      if (this.hasEnded) throw new TypeError('expected no message after the end')
      for (let from = 0; ; from += partBytesMax) {
        const part = message.subarray(from, from + partBytesMax)
        const isLast = from + partBytesMax >= message.length
        await this.takeCredit(part.length + FRAME_COST)
        this.post(isLast ? KINDS.last : KINDS.part, part)
        if (isLast) return
      }
    })
  }

  async end(): Promise<void> {
    await this.sending.run(async () => {
      if (this.hasEnded || this.signal.aborted) return
      this.hasEnded = true
      this.post(KINDS.end)
    })
    this.close()
  }

  abort(detail: unknown): void {
    if (this.isOver) return
    const content = Buffer.from(JSON.stringify(detail ?? null))
    this.post(KINDS.abort, content.length <= ABORT_BYTES_MAX ? content : Buffer.from('null'))
    this.isDropped = true
    this.waiting.length = 0
    this.fail(new ChannelError('lost', 'the channel was ended here'))
  }

  lose(why: string): void {
    if (!this.isOver) this.refuse(why)
  }

  isEnded(): boolean {
    return this.hasEnded || this.signal.aborted
  }

  sent(): number {
    return this.sentFrames
  }

  check(sent: number): void {
    if (this.isOver) return
    if (this.takenFrames < this.reportedFrames) this.refuse('a frame is missing')
    this.reportedFrames = sent
  }

  receive(frame: Uint8Array): void {
    if (this.isOver) return
    const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength)
    const isNext = frame.length >= HEAD_BYTES && view.getUint32(1) === this.takenFrames >>> 0
    const isAbort = frame[0] === KINDS.abort
    if (isNext) this.takenFrames++
    if (isNext) this.take(frame[0] as Kind, frame.subarray(HEAD_BYTES))
    else if (isAbort) this.fail(new ChannelError('lost', 'the other gateway ended the call'))
    else this.refuse('a frame is missing')
  }

  private take(kind: Kind, body: Uint8Array): void {
    switch (kind) {
      case KINDS.part:
      case KINDS.last:
        this.takePart(body, kind === KINDS.last)
        return
      case KINDS.credit:
        if (body.length !== 4) this.refuse('credit is not of four bytes')
        else this.grow(new DataView(body.buffer, body.byteOffset).getUint32(0))
        return
      case KINDS.end:
        if (this.parts.length > 0) {
          this.refuse('the end came within a message')
          return
        }
        this.hasPeerEnded = true
        this.wake()
        this.close()
        return
      case KINDS.abort:
        this.fail(new ChannelError('aborted', 'the other gateway ended the call', parse(body)))
        return
      default:
        this.refuse('a frame is of no known kind')
    }
  }

  private takePart(body: Uint8Array, isLast: boolean): void {
    const fault = this.faultOf(body)
    if (fault !== null) {
      this.refuse(fault)
      return
    }
    const cost = body.length + FRAME_COST
    this.granted -= cost
    this.partsCost += cost
    this.messageBytes += body.length
    // What came with it in one packet is not kept for its sake.
    this.parts.push(new Uint8Array(body))
    if (!this.hold(body.length)) {
      this.refuse('too much waits to be read')
      return
    }
    if (!isLast) {
      if (this.isReading) this.oweParts()
      return
    }
    const [first, ...more] = this.parts
    const message = more.length === 0 && first !== undefined ? first : concatBytes(...this.parts)
    this.waiting.push({ message, cost: this.partsCost })
    this.parts = []
    this.messageBytes = 0
    this.partsCost = 0
    this.wake()
  }

  /** What is wrong with a part that came; null for nothing. */
  private faultOf({ length }: Uint8Array): string | null {
    if (this.hasPeerEnded) return 'a message came after the end'
    if (this.granted <= 0 || length > PART_BYTES_MAX) return 'more was sent than is taken'
    if (this.messageBytes + length > MESSAGE_BYTES_MAX) return 'a message is too long'
    return null
  }

  private hold(bytes: number): boolean {
    this.heldBytes += bytes
    return this.options.hold?.(bytes) ?? true
  }

  private async *read(): AsyncGenerator<Uint8Array> {
    let isDone = false
    try {
      for (;;) {
        const next = this.waiting.shift()
        if (next !== undefined) {
          if (!this.isOver) this.hold(-next.message.length)
          this.owe(next.cost)
          yield next.message
        } else if (this.hasPeerEnded && !this.isDropped) {
          // It is whole: what came later does not matter.
          isDone = true
          return
        } else if (this.signal.aborted) throw this.signal.reason
        else await this.nextNews()
      }
    } finally {
      if (!isDone) this.abort(null)
    }
  }

  private async nextNews(): Promise<void> {
    this.isReading = true
    // The message that comes may be longer than the window: its reader waits for the whole.
    this.oweParts()
    await this.news.promise
    this.isReading = false
  }

  private async takeCredit(bytes: number): Promise<void> {
    while (this.credit <= 0 && !this.signal.aborted) await this.moreCredit.promise
    this.signal.throwIfAborted()
    this.credit -= bytes
  }

  private grow(bytes: number): void {
    this.credit += bytes
    if (this.credit > WINDOW_BYTES) {
      this.refuse('more credit came than was used')
      return
    }
    this.moreCredit.resolve()
    this.moreCredit = Promise.withResolvers()
  }

  private oweParts(): void {
    const cost = this.partsCost
    this.partsCost = 0
    this.owe(cost)
  }

  private owe(bytes: number): void {
    this.owedCredit += bytes
    if (this.owedCredit < WINDOW_BYTES / 4 || this.hasPeerEnded || this.isOver) return
    this.granted += this.owedCredit
    const body = new Uint8Array(4)
    new DataView(body.buffer).setUint32(0, this.owedCredit)
    this.owedCredit = 0
    this.post(KINDS.credit, body)
  }

  private post(kind: Kind, body: Uint8Array = new Uint8Array()): void {
    const frame = new Uint8Array(HEAD_BYTES + body.length)
    frame[0] = kind
    new DataView(frame.buffer).setUint32(1, this.sentFrames++)
    frame.set(body, HEAD_BYTES)
    this.options.publish(frame)
  }

  /** The other side breaks the protocol: it gets the reason, and is believed no more. */
  private refuse(why: string): void {
    this.post(KINDS.abort, Buffer.from('null'))
    this.fail(new ChannelError('lost', why))
  }

  private fail(error: ChannelError): void {
    if (this.isOver) return
    this.ending.abort(error)
    this.wake()
    this.moreCredit.resolve()
    this.close()
  }

  private wake(): void {
    this.news.resolve()
    this.news = Promise.withResolvers()
  }

  private close(): void {
    if (this.isOver || !(this.signal.aborted || (this.hasEnded && this.hasPeerEnded))) return
    this.isOver = true
    this.parts = []
    this.hold(-this.heldBytes)
    this.options.onOver()
  }
}

function parse(body: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(body).toString())
  } catch {
    return null
  }
}
