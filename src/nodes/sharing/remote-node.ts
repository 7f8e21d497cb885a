import type { z } from 'zod'
import { FormatError } from '#attestation/errors.ts'
import type { Bus } from '../../bus/bus.ts'
import { type Channel, ChannelError } from '../../bus/channel.ts'
import { currentTraceparent } from '../../observability/call-scope.ts'
import type { NodeDialect } from '../protocol/dialects.ts'
import type { AnswerReader, ChatQuestion, ChatRun, ChatRunOptions } from '../runs/chat-run.ts'
import type { ChunkBatch } from '../runs/chunk-queue.ts'
import type { Start } from '../runs/connection.ts'
import type { CallableNode } from '../runs/dispatch.ts'
import { DispatchError } from '../runs/dispatch-error.ts'
import type { ImageRunOptions } from '../runs/image-run.ts'
import { type Offer, openOffer, type Slots } from '../runs/offer.ts'
import {
  decodeFault,
  imageHead,
  readBatch,
  readMessage,
  type SharedOffer,
  writeMessage,
} from './messages.ts'

/**
 * Represents all nodes of another gateway for one model as one node. The used slots are the number
 * that the other gateway last published, plus the calls that were sent since then.
 */
export class RemoteNode implements CallableNode {
  readonly nodeId: string
  readonly isRemote = true
  /** The other gateway removes the members that its nodes do not accept. */
  readonly takesExtraMembers = true
  readonly takesLargeFrames: boolean
  readonly abilities: ReadonlySet<string>
  readonly offers: readonly [Offer<RemoteNode>]
  readonly slots: Slots
  restsUntilMs = Number.NEGATIVE_INFINITY
  private readonly bus: Pick<Bus, 'open'>
  private readonly peer: string
  private readonly onChanged: () => void
  private published: Pick<SharedOffer, 'nodes' | 'capacity'>
  private inUse = 0
  /**
   * Counts the calls of `fill`. Slots that were taken before the last call do not change `inUse`
   * when they are released.
   */
  private timesFull = 0
  private isGone = false

  constructor(
    offer: SharedOffer,
    {
      bus,
      peer,
      onChanged,
    }: {
      readonly bus: Pick<Bus, 'open'>
      readonly peer: string
      readonly onChanged: (node: RemoteNode) => void
    },
  ) {
    this.bus = bus
    this.peer = peer
    this.nodeId = `gateway ${peer}`
    this.takesLargeFrames = offer.large
    this.abilities = new Set(offer.abilities)
    this.offers = [openOffer<RemoteNode>(this, offer.model)]
    this.onChanged = () => onChanged(this)
    this.published = offer
    const remote = this
    this.slots = {
      get capacity() {
        return remote.published.capacity
      },
      inUse: () => this.inUse,
      acquire: () => this.acquire(),
    }
    this.read(offer)
  }

  get nodes(): number {
    return this.published.nodes
  }

  isConnected(): boolean {
    return !this.isGone
  }

  isServing(): boolean {
    return !this.isGone && this.published.nodes > 0
  }

  isAvailable(): boolean {
    return this.isServing() && this.inUse < this.published.capacity
  }

  /** Only the other gateway knows which of its nodes has room. */
  hasRoomFor(): boolean {
    return true
  }

  update(offer: SharedOffer): void {
    this.read(offer)
    this.onChanged()
  }

  /** Called when the other gateway has stopped, or no longer has a node for the model. */
  end(): void {
    this.isGone = true
    this.onChanged()
  }

  chat(
    { request, dialect }: ChatQuestion,
    { signal, slot, accountId, reader }: Start<ChatRunOptions>,
  ): Pick<ChatRun, 'firstToken' | 'batches'> {
    const call = this.open('chat', { accountId, dialect, signal, onOver: () => slot.release() })
    const messages = call.messages[Symbol.asyncIterator]()
    const firstToken = call.guard(async () => {
      await Promise.all([call.channel.send(writeMessage(request)), nextMessage(messages)])
    })
    // Without this handler, a rejection after the caller has left would be unhandled.
    firstToken.catch(() => {})
    return { firstToken, batches: readBatches(call, messages, { reader, dialect }) }
  }

  draw({
    request,
    signal,
    slot,
    accountId,
  }: Start<ImageRunOptions>): ReturnType<CallableNode['draw']> {
    const call = this.open('images', { accountId, signal, onOver: () => slot.release() })
    const messages = call.messages[Symbol.asyncIterator]()
    const { image, ...rest } = request
    const answer = call.guard(async () => {
      await call.channel.send(writeMessage(rest))
      await call.channel.send(Buffer.from(image ?? ''))
      const { images: count } = parseHead(await nextMessage(messages))
      const images: string[] = []
      while (images.length < count) images.push(Buffer.from(await next(messages)).toString())
      // The node has finished, and the check of its images needs no slot.
      slot.release()
      return images
    })
    answer.catch(() => {})
    return {
      answer,
      drop: () => call.leave(),
      conclude(error) {
        void call
          .guard(async () => {
            await call.channel.send(writeMessage({ fault: error === null ? null : error.message }))
            await call.channel.end()
            call.over()
          })
          .catch(() => {})
      },
    }
  }

  private read(offer: SharedOffer): void {
    this.published = offer
    this.inUse = offer.in_use
    const { first_token_ms: firstTokenMs, tokens_per_second: tokensPerSecond } = offer
    this.offers[0].speed = { firstTokenMs, tokensPerSecond }
  }

  private acquire(): ReturnType<Slots['acquire']> {
    if (!this.isAvailable()) return null
    this.inUse++
    this.onChanged()
    let isReleased = false
    const { timesFull } = this
    return {
      release: () => {
        if (isReleased) return
        isReleased = true
        if (timesFull !== this.timesFull) return
        this.inUse = Math.max(0, this.inUse - 1)
        this.onChanged()
      },
    }
  }

  /** Marks all slots as used until the other gateway publishes its slots again. */
  private fill(): void {
    this.timesFull++
    this.inUse = this.published.capacity
    this.onChanged()
  }

  private open(
    service: 'chat' | 'images',
    options: {
      readonly accountId: string | null
      readonly dialect?: NodeDialect | null
      readonly signal: AbortSignal
      readonly onOver: () => void
    },
  ): RemoteCall {
    const channel = this.bus.open(this.peer, service, {
      model: this.offers[0].model,
      account_id: options.accountId,
      dialect: options.dialect ?? null,
      traceparent: currentTraceparent(),
    })
    return new RemoteCall(channel, { ...options, onFull: () => this.fill() })
  }
}

class RemoteCall {
  readonly channel: Channel
  private readonly options: {
    readonly signal: AbortSignal
    readonly onOver: () => void
    readonly onFull: () => void
  }
  private readonly onAbort = () => this.leave()

  constructor(channel: Channel, options: RemoteCall['options']) {
    this.channel = channel
    this.options = options
    options.signal.addEventListener('abort', this.onAbort)
    if (options.signal.aborted) this.onAbort()
  }

  get messages(): AsyncIterable<Uint8Array> {
    return this.channel.messages
  }

  /** A failure ends the call, and the caller gets the error. */
  async guard<Result>(run: () => Promise<Result>): Promise<Result> {
    try {
      return await run()
    } catch (error) {
      this.channel.abort(null)
      const cause = this.causeOf(error)
      // `onFull` comes first. Otherwise the next waiting caller would get this slot and be refused
      // too.
      if (cause instanceof DispatchError && cause.code === 'no_nodes') this.options.onFull()
      this.over()
      throw cause
    }
  }

  leave(): void {
    this.channel.abort(null)
    this.over()
  }

  over(): void {
    this.options.signal.removeEventListener('abort', this.onAbort)
    this.options.onOver()
  }

  private causeOf(error: unknown): unknown {
    const { signal } = this.options
    if (signal.aborted) return signal.reason
    if (error instanceof ChannelError)
      return error.code === 'aborted'
        ? decodeFault(error.detail)
        : new DispatchError('node_lost', 'The gateway that has the node cannot be reached')
    if (error instanceof FormatError)
      return new DispatchError(
        'node_failed',
        `The gateway refused the node's answer: ${error.message}`,
      )
    return error
  }
}

async function next(messages: AsyncIterator<Uint8Array>): Promise<Uint8Array> {
  const { done, value } = await messages.next()
  if (done) throw new DispatchError('node_lost', 'The gateway that has the node said too little')
  return value
}

async function nextMessage(messages: AsyncIterator<Uint8Array>): Promise<unknown> {
  return readMessage(await next(messages))
}

function parseHead(message: unknown): z.output<typeof imageHead> {
  const { data } = imageHead.safeParse(message)
  if (data === undefined) throw new FormatError('other', 'expected the number of images')
  return data
}

/** The call ends when the caller leaves the iteration. */
async function* readBatches(
  call: RemoteCall,
  messages: AsyncIterator<Uint8Array>,
  { reader, dialect }: Pick<ChatQuestion, 'dialect'> & { readonly reader: AnswerReader | null },
): AsyncGenerator<ChunkBatch> {
  let isWhole = false
  try {
    for (;;) {
      const batch = await call.guard(async () => {
        const { done, value } = await messages.next()
        if (done) {
          reader?.finish()
          return null
        }
        const { chunks, bytes } = readBatch(value, dialect)
        return {
          chunks: reader === null ? chunks : chunks.flatMap((chunk) => reader.push(chunk)),
          bytes,
        }
      })
      if (batch === null) break
      if (batch.chunks.length > 0) yield batch
    }
    isWhole = true
    await call.channel.end()
  } finally {
    if (!isWhole) call.channel.abort(null)
    call.over()
  }
}
