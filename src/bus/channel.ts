import { concatBytes } from '../../attestation/bytes.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'

/**
 * A channel is two streams of messages between two gateways, one each way, over a transport that
 * may lose what it carries and has no back-pressure of its own. A frame is a byte for its kind,
 * four for its number (big-endian, from 0 in each direction), and a body. A frame that is missing,
 * or comes twice, ends the channel: nothing is repeated.
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
/**
 * Bytes that may be under way to a reader who does not read. A server cuts off a gateway for which
 * 64 MiB wait (NATS's default): 256 calls that nobody reads come to that.
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
  /** Ends it at once; the other side is told `detail`, a JSON value. */
  abort(detail: unknown): void
}

/** A channel, and what its transport does with it. */
export type OpenChannel = Channel & {
  /** Takes a frame that came for it. */
  receive(frame: Uint8Array): void
  /** The other side cannot be reached any more. */
  lose(why: string): void
}

/** Gives one side of a channel. */
export function createChannel(options: {
  readonly peer: string
  /** Sends a frame, or drops it: whoever waits for it finds that one is missing. */
  readonly publish: (frame: Uint8Array) => void
  /** Told once, when the channel is over in both directions. */
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
  /** Bytes that the other side takes. */
  private credit = WINDOW_BYTES
  private moreCredit = Promise.withResolvers<void>()
  /** Bytes that were read, and not told yet. */
  private owedCredit = 0
  private parts: Uint8Array[] = []
  private messageBytes = 0
  /** Bytes of the message that comes, for which the other side has no credit back yet. */
  private heldCredit = 0
  private readonly waiting: { readonly message: Uint8Array; readonly credit: number }[] = []
  private news = Promise.withResolvers<void>()
  private hasEnded = false
  private hasPeerEnded = false
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
    return this.sending.run(async () => {
      for (let from = 0; ; from += PART_BYTES_MAX) {
        const part = message.subarray(from, from + PART_BYTES_MAX)
        const isLast = from + PART_BYTES_MAX >= message.length
        await this.takeCredit(part.length)
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
    const told = Buffer.from(JSON.stringify(detail ?? null))
    this.post(KINDS.abort, told.length <= ABORT_BYTES_MAX ? told : Buffer.from('null'))
    this.waiting.length = 0
    this.fail(new ChannelError('lost', 'the channel was ended here'))
  }

  lose(why: string): void {
    this.fail(new ChannelError('lost', why))
  }

  receive(frame: Uint8Array): void {
    if (this.isOver) return
    const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength)
    const isNext = frame.length >= HEAD_BYTES && view.getUint32(1) === this.takenFrames >>> 0
    if (!isNext) {
      this.refuse('a frame is missing')
      return
    }
    this.takenFrames++
    this.take(frame[0] as Kind, frame.subarray(HEAD_BYTES))
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
    this.messageBytes += body.length
    this.heldCredit += body.length
    if (this.hasPeerEnded || this.messageBytes > MESSAGE_BYTES_MAX) {
      this.refuse('a message is too long, or comes after the end')
      return
    }
    this.parts.push(body)
    if (isLast) {
      const message = this.parts.length === 1 ? body : concatBytes(...this.parts)
      this.waiting.push({ message, credit: this.heldCredit })
      this.parts = []
      this.messageBytes = 0
      this.heldCredit = 0
      this.wake()
    } else if (this.waiting.length === 0) {
      // The reader waits for the whole message, which may be longer than the window.
      const credit = this.heldCredit
      this.heldCredit = 0
      this.owe(credit)
    }
  }

  private async *read(): AsyncGenerator<Uint8Array> {
    let isDone = false
    try {
      for (;;) {
        const next = this.waiting.shift()
        if (next !== undefined) {
          this.owe(next.credit)
          yield next.message
        } else if (this.signal.aborted) throw this.signal.reason
        else if (this.hasPeerEnded) {
          isDone = true
          return
        } else await this.news.promise
      }
    } finally {
      if (!isDone) this.abort(null)
    }
  }

  private async takeCredit(bytes: number): Promise<void> {
    while (this.credit <= 0 && !this.signal.aborted) await this.moreCredit.promise
    this.signal.throwIfAborted()
    this.credit -= bytes
  }

  private grow(bytes: number): void {
    this.credit += bytes
    this.moreCredit.resolve()
    this.moreCredit = Promise.withResolvers()
  }

  private owe(bytes: number): void {
    this.owedCredit += bytes
    if (this.owedCredit < WINDOW_BYTES / 4 || this.hasPeerEnded) return
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

  /** The other side breaks the protocol: it is told, and believed no more. */
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
