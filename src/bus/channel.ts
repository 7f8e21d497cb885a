import { concatBytes } from '#attestation/bytes.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'

/**
 * A channel is two streams of messages between two gateways, one in each direction. The transport
 * may lose frames and has no back-pressure. A frame is a byte for its kind, four bytes for its
 * number (big-endian, from 0 in each direction), and a body. A frame that is missing or arrives
 * twice ends the channel. A missing last frame is found when the other side reports how many frames
 * it has sent (`check`).
 */

const KINDS = {
  /** A part of a message. More parts follow. */
  part: 0,
  /** The last part of a message. */
  last: 1,
  /** The body is four bytes: how many more bytes the other side may send. */
  credit: 2,
  /** The sender sends nothing more. */
  end: 3,
  /** Ends the channel. The body is the reason, as JSON. */
  abort: 4,
} as const

type Kind = (typeof KINDS)[keyof typeof KINDS]

const HEAD_BYTES = 5
/** NATS servers accept frames of 1 MiB by default. Smaller frames delay other channels less. */
export const PART_BYTES_MAX = 64 * 1024
/** Cost of a frame in addition to its bytes, because even an empty frame needs memory. */
export const FRAME_COST = 256
/**
 * Maximum bytes that wait for one reader. One more frame can arrive. By default, a NATS server
 * disconnects a gateway for which 64 MiB wait: the bytes of 256 readers.
 */
export const WINDOW_BYTES = 4 * PART_BYTES_MAX
/** Enough for a large chat request or an image. */
export const MESSAGE_BYTES_MAX = 48 * 1024 * 1024
const ABORT_BYTES_MAX = 16 * 1024

type ChannelErrorCode =
  /** The other side ended the channel and wrote the reason in `detail`. */
  | 'aborted'
  /** The other side is gone, or a frame is lost. */
  | 'lost'

export class ChannelError extends Error {
  override readonly name = 'ChannelError'
  readonly code: ChannelErrorCode
  /** The reason that the other side sent, a JSON value. */
  readonly detail: unknown

  constructor(code: ChannelErrorCode, message: string, detail: unknown = null) {
    super(message)
    this.code = code
    this.detail = detail
  }
}

export type Channel = {
  readonly peer: string
  /**
   * Messages are whole and in order, until the other side ends its stream. After a fault, the
   * earlier messages are delivered before ChannelError is thrown. Iterate only once. Leaving the
   * iteration early aborts the channel.
   */
  readonly messages: AsyncIterable<Uint8Array>
  /** Aborted with the ChannelError if the channel ends early. */
  readonly signal: AbortSignal
  /** Waits while the other side's reader is too slow. Throws ChannelError. */
  send(message: Uint8Array): Promise<void>
  /** Ends this side's stream after the messages that were sent. */
  end(): Promise<void>
  /** The other side receives `detail`, a JSON value. */
  abort(detail: unknown): void
}

/** The transport calls these methods. */
export type OpenChannel = Channel & {
  receive(frame: Uint8Array): void
  /** Ends the channel because the other side is unreachable. Still tries to send `why`. */
  lose(why: string): void
  /** True if this side sends nothing more. */
  isEnded(): boolean
  sent(): number
  /**
   * `sent`: the number of frames in the other side's regular report. A frame that is missing at two
   * reports is lost.
   */
  check(sent: number): void
}

export function createChannel(options: {
  readonly peer: string
  /** Sends or drops a frame. The receiver notices a missing frame. */
  readonly publish: (frame: Uint8Array) => void
  /**
   * Called when `bytes` more bytes wait for the reader, or fewer if `bytes` is negative. Returns
   * false if too many bytes wait. By default there is no limit.
   */
  readonly hold?: (bytes: number) => boolean
  /** Default and maximum: PART_BYTES_MAX. */
  readonly partBytesMax?: number
  /** Called once, when both streams have ended. */
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
  /**
   * The other side still accepts this many bytes. Below 0 if the last frame exceeded the credit.
   */
  private credit = WINDOW_BYTES
  /** This side still accepts this many bytes. A change reaches the other side a little later. */
  private granted = WINDOW_BYTES
  private moreCredit = Promise.withResolvers<void>()
  /** Credit that this side must still send, for bytes that were read. */
  private owedCredit = 0
  private parts: Uint8Array[] = []
  private messageBytes = 0
  /** Cost of parts of the arriving message for which no credit was sent back yet. */
  private partsCost = 0
  /** Bytes that wait for the reader. */
  private heldBytes = 0
  /** Frames in the other side's last report. */
  private reportedFrames = 0
  private isReading = false
  private readonly waiting: { readonly message: Uint8Array; readonly cost: number }[] = []
  private news = Promise.withResolvers<void>()
  private hasEnded = false
  private hasPeerEnded = false
  /** This side ended the channel, so earlier messages are not needed. */
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
    // A copy, so that this part does not keep the whole packet in memory.
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
          // The stream was complete, so later events do not matter.
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
    // The arriving message may be longer than the window, so its credit is sent back now.
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

  /** The other side broke the protocol. All later frames are ignored. */
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
