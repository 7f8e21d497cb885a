import { randomBytes } from 'node:crypto'
import type { Msg, NatsConnection, Subscription } from '@nats-io/transport-node'
import { z } from 'zod'
import type { Logger, Opening } from '../observability/logger.ts'
import { backOffMs } from '../runtime/back-off.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import { pause } from '../runtime/loop.ts'
import { makeId } from '../runtime/make-id.ts'
import type { Database } from '../storage/database.ts'
import { openServiceKey } from '../storage/service-keys.ts'
import { type Channel, type OpenChannel, PART_BYTES_MAX } from './channel.ts'
import { CHANNELS_MAX, createChannelTable } from './channel-table.ts'
import { connectBus } from './connect-bus.ts'
import { createPeers } from './peers.ts'
import {
  createMessageSealer,
  type MessageSealer,
  type MessageSubject,
  SEAL_BYTES_MAX,
  type SealRefusal,
} from './sealed-messages.ts'
import type { BusConfig } from './settings.ts'

const PRESENCE_INTERVAL_MS = 1_000
/** A stopping gateway waits at most this long until its last messages are sent. */
const FLUSH_MS = 1_000
/** Maximum number of channels in one message of `publishTally`. */
const TALLY_MAX = 4_000
/** Maximum bytes of a channel in a tally, and of the rest of its message. */
const TALLY_CHANNEL_BYTES = 96
const TALLY_HEAD_BYTES = 256 + SEAL_BYTES_MAX
/** Version of the messages between gateways. A gateway of another version cannot read them. */
const VERSION = 1
/** Bytes of a frame in addition to its message. */
const FRAME_HEAD_BYTES = 16 + SEAL_BYTES_MAX
const FAULT_LOG_INTERVAL_MS = 30_000

/** Receives a JSON value that the gateway `from` published to all gateways of the service. */
type Listener = (from: string, message: unknown) => void

/** A thrown error ends the channel, but is not sent to the other gateway. */
type Serve = (channel: Channel, header: unknown) => Promise<void>

/** Connects the gateways of one service. Any message may be lost. The receiver notices the loss. */
export type Bus = {
  /** Id of this gateway on the bus, new after each start. */
  readonly id: string
  /** A gateway that is disconnected does not receive the message. */
  publish(topic: string, message: unknown): void
  listen(topic: string, listener: Listener): void
  /** The other gateways from which a message arrived recently. */
  peers(): readonly string[]
  /** If the connection to the server is lost, all other gateways count as gone. */
  onGone(listener: (peer: string) => void): void
  onCome(listener: (peer: string) => void): void
  open(peer: string, service: string, header: unknown): Channel
  serve(service: string, serve: Serve): void
  /**
   * Registers a function that answers questions about an object of this gateway. Question and
   * answer are JSON values. If the answer is undefined, this gateway sends no reply, and another
   * gateway may reply. The returned function ends the registration.
   */
  answer(topic: string, name: string, answer: (question: unknown) => Promise<unknown>): () => void
  /** Null if no gateway has the object, or if no answer arrives in time. */
  ask(
    topic: string,
    name: string,
    asked: { question: unknown; timeoutMs: number },
  ): Promise<unknown>
  status(): BusStatus
  /** Publishes that this gateway stops, and ends all channels and the connection. */
  stop(): Promise<void>
}

type BusStatus = {
  readonly isUp: boolean
  readonly peers: number
  /** Running calls from and to other gateways. */
  readonly channels: number
  /** Refused messages since the start, by reason. */
  readonly refused: ReadonlyMap<SealRefusal, number>
}

/** One word of a subject. */
const WORD = /^[A-Za-z0-9_-]{1,64}$/
const sender = {
  version: z.literal(VERSION),
  from: z.string().regex(WORD),
  epoch: z.int().min(0),
}
const envelope = z.object({ ...sender, body: z.unknown() })
const opening = z.object({ ...sender, service: z.string(), header: z.unknown() })
const tally = z.array(z.tuple([z.string().regex(WORD), z.int().min(0)])).max(TALLY_MAX)

/** Null if NATS_URL is not set. */
export async function openBus(
  config: BusConfig | null,
  { database, log, onStarted }: Opening & { readonly database: Database },
): Promise<Bus | null> {
  if (config === null) return null
  const key = await openServiceKey(database, { name: 'bus', random: randomBytes })
  // All gateways must share this time, also after a machine's clock is set.
  const bus = startBus(config, { key, makeId, now: Date.now, log })
  onStarted(() => bus.stop())
  return bus
}

/**
 * Connects in the background, and again when the connection ends. A gateway also starts and serves
 * calls while no server is reachable. A message that no gateway of the service sealed is dropped
 * and counted.
 */
export function startBus(config: BusConfig, parts: BusParts): Bus {
  return new NatsBus(config, parts)
}

type BusParts = {
  /** Gateways of the service recognize each other by this key (openServiceKey). */
  readonly key: Uint8Array
  readonly makeId: () => string
  /** Unix milliseconds. */
  readonly now: () => number
  readonly log: Logger
}

type Answer = {
  readonly answer: (question: unknown) => Promise<unknown>
  /** Null before the first connection. */
  subscription: Subscription | null
}

class NatsBus implements Bus {
  readonly id: string
  private readonly config: BusConfig
  private readonly makeId: () => string
  private readonly log: Logger
  private readonly sealer: MessageSealer
  private readonly refused = new Map<SealRefusal, number>()
  private readonly faultLog = createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())
  private readonly warnings = new Map<string, ReturnType<typeof createFaultLog>>()
  private readonly stopping = new AbortController()
  private readonly seen = createPeers({
    now: () => performance.now(),
    onCome: (peer) => this.meet(peer),
    onGone: (peer, why) => this.part(peer, why),
  })
  private readonly channels = createChannelTable({
    publish: (peer, name, frame) => this.post(this.subject('channel', peer, name), frame),
    partBytesMax: () => this.partBytesMax(),
    now: () => performance.now(),
  })
  private readonly listeners = new Map<string, Listener[]>()
  private readonly services = new Map<string, Serve>()
  private readonly answers = new Map<string, Answer>()
  private readonly goneListeners: ((peer: string) => void)[] = []
  private readonly comeListeners: ((peer: string) => void)[] = []
  private readonly timer: NodeJS.Timeout
  private readonly running: Promise<void>
  private connection: NatsConnection | null = null
  private isUp = false
  /** Counts the connections to servers. Calls of an earlier connection are lost. */
  private epoch = 0

  constructor(config: BusConfig, { key, makeId, now, log }: BusParts) {
    this.config = config
    this.makeId = makeId
    this.log = log
    this.id = makeId()
    this.sealer = createMessageSealer({ key, id: this.id, now })
    this.timer = setInterval(() => this.tend(), PRESENCE_INTERVAL_MS)
    this.timer.unref()
    this.running = this.run()
  }

  publish(topic: string, message: unknown): void {
    this.post(this.subject('all', topic), this.enveloped(message))
  }

  listen(topic: string, listener: Listener): void {
    this.listeners.set(topic, [...(this.listeners.get(topic) ?? []), listener])
  }

  peers(): readonly string[] {
    return this.seen.list()
  }

  onGone(listener: (peer: string) => void): void {
    this.goneListeners.push(listener)
  }

  onCome(listener: (peer: string) => void): void {
    this.comeListeners.push(listener)
  }

  open(peer: string, service: string, header: unknown): Channel {
    const name = this.makeId()
    const channel = present(this.channels.add(peer, name))
    const text = JSON.stringify({ ...this.sender(), service, header })
    if (!this.isUp || !this.seen.has(peer)) channel.lose('the other gateway is gone')
    // If the peer has no subscription, the server reports this on the channel's subject.
    else this.post(this.subject('open', peer), text, this.subject('channel', this.id, name))
    return channel
  }

  serve(service: string, serve: Serve): void {
    this.services.set(service, serve)
  }

  answer(topic: string, name: string, answer: (question: unknown) => Promise<unknown>): () => void {
    const subject = this.subject('ask', topic, tokenOf(name))
    const given: Answer = { answer, subscription: null }
    this.answers.set(subject, given)
    this.subscribeAnswer(subject, given)
    return () => {
      if (this.answers.get(subject) === given) this.answers.delete(subject)
      given.subscription?.unsubscribe()
    }
  }

  async ask(
    topic: string,
    name: string,
    { question, timeoutMs: timeout }: { question: unknown; timeoutMs: number },
  ): Promise<unknown> {
    if (!this.isUp || this.connection === null) return null
    const subject = this.subject('ask', topic, tokenOf(name))
    try {
      const sealed = this.sealer.seal({ subject }, bytesOf(question))
      const reply = await this.connection.request(subject, sealed, { timeout })
      return jsonOf(this.unseal({ subject: reply.subject }, reply))
    } catch {
      return null
    }
  }

  status(): BusStatus {
    const [peers, channels] = [this.seen.list().length, this.channels.size()]
    return { isUp: this.isUp, peers, channels, refused: this.refused }
  }

  async stop(): Promise<void> {
    clearInterval(this.timer)
    this.post(this.subject('all', 'gone'), this.enveloped(null))
    this.stopping.abort()
    // The wait is limited, because the server may hang.
    const isFlushed = new AbortController()
    this.connection?.flush().then(
      () => isFlushed.abort(),
      () => isFlushed.abort(),
    )
    if (this.isUp) await pause(FLUSH_MS, isFlushed.signal)
    this.fall('this gateway stops')
    await this.connection?.close()
    // A connection that is still being opened is closed as soon as it is open.
    const isOver = new AbortController()
    void this.running.then(() => isOver.abort())
    await pause(FLUSH_MS, isOver.signal)
  }

  /** Connects again each time the client gives up. */
  private async run(): Promise<void> {
    const { signal } = this.stopping
    for (let failures = 1; !signal.aborted; failures++) {
      try {
        const connection = await connectBus(this.config, this.id)
        if (signal.aborted) await connection.close()
        else await this.follow(connection)
        failures = 0
      } catch (error) {
        if (this.faultLog.isDue())
          this.log.error({ err: error }, 'bus cannot be used, trying again')
      }
      await pause(backOffMs(failures, { minMs: 250, maxMs: 10_000 }, { jitter: 'half' }), signal)
    }
  }

  /** Returns when the client closes the connection and will not reconnect. */
  private async follow(connection: NatsConnection): Promise<void> {
    this.connection = connection
    const subscribe = (subject: string, take: (message: Msg) => void) =>
      connection.subscribe(subject, { callback: this.safely(take) })
    subscribe(this.subject('all', '*'), (message) => this.takeBroadcast(message))
    subscribe(this.subject('open', this.id), (message) => this.takeOpening(message))
    subscribe(this.subject('channel', this.id, '*'), (message) => this.takeFrame(message))
    subscribe(this.subject('tally', this.id), (message) => this.takeTally(message))
    for (const [subject, given] of this.answers) this.subscribeAnswer(subject, given)
    this.rise()
    for await (const status of connection.status()) {
      if (status.type === 'reconnect') this.rise()
      else if (status.type === 'disconnect') this.fall('the connection to the bus ended')
      else if (status.type === 'error') this.warn(status.error, 'the bus reported an error')
    }
    this.fall('the connection to the bus was closed')
    this.connection = null
  }

  /** Runs when a connection is open. No other gateway is known yet. */
  private rise(): void {
    this.epoch++
    this.isUp = true
    this.faultLog.clear()
    this.log.info({ bus: this.connection?.getServer() }, 'bus connected')
    this.announce()
  }

  private fall(why: string): void {
    if (this.isUp && !this.stopping.signal.aborted) this.log.warn({ why }, 'bus lost')
    this.isUp = false
    this.channels.loseAll(null, why)
    this.seen.forgetAll(why)
  }

  private tend(): void {
    this.seen.expire()
    this.announce()
    for (const peer of this.peers()) this.publishTally(peer)
  }

  private announce(): void {
    this.publish('here', null)
  }

  /** Publishes how many frames were sent, so that the peer notices a missing last frame. */
  private publishTally(peer: string): void {
    const sent = this.channels.tally(peer)
    const fitting = Math.floor((this.serverBytesMax() - TALLY_HEAD_BYTES) / TALLY_CHANNEL_BYTES)
    const count = Math.max(1, Math.min(TALLY_MAX, fitting))
    for (let from = 0; from < sent.length; from += count)
      this.post(this.subject('tally', peer), this.enveloped(sent.slice(from, from + count)))
  }

  private meet(peer: string): void {
    this.log.info({ peer }, 'gateway of this service found')
    this.announce()
    for (const listener of this.comeListeners) listener(peer)
  }

  private part(peer: string, why: string): void {
    this.log.info({ peer, why }, 'gateway of this service gone')
    this.channels.loseAll(peer, why)
    for (const listener of this.goneListeners) listener(peer)
  }

  private takeBroadcast(message: Msg): void {
    const { from, epoch, body } = this.readEnvelope(message)
    if (from === this.id) return
    const topic = lastWord(message.subject)
    if (topic === 'gone') this.seen.forget(from, 'it stopped')
    else if (this.seen.see(from, epoch))
      for (const listener of this.listeners.get(topic) ?? []) listener(from, body)
  }

  private takeOpening(message: Msg): void {
    const { subject, reply } = message
    const opened = this.unseal({ subject, reply }, message)
    const { from, epoch, service, header } = opening.parse(ownWords(opened))
    const name = lastWord(message.reply ?? '')
    if (!WORD.test(name) || from === this.id || !this.seen.see(from, epoch)) return
    const channel = this.channels.add(from, name)
    if (channel === null) return
    const serve = this.services.get(service)
    if (serve === undefined || this.channels.size() > CHANNELS_MAX)
      channel.abort({ code: serve === undefined ? 'unknown_service' : 'overloaded' })
    else void this.serveChannel(channel, () => serve(channel, header))
  }

  private async serveChannel(channel: OpenChannel, serve: () => Promise<void>): Promise<void> {
    try {
      await serve()
    } catch (error) {
      if (!channel.signal.aborted) this.warn(error, 'call of another gateway failed')
    }
    // A channel that ended correctly is not aborted: messages may still be read and answered.
    if (!channel.isEnded()) channel.abort(null)
  }

  private takeFrame(message: Msg): void {
    const name = lastWord(message.subject)
    // No gateway subscribes to the subject. The server reports this on the answer's subject.
    if (message.headers?.code === 503) this.channels.lose(name, 'the other gateway is gone')
    else this.channels.receive(name, this.unseal({ subject: message.subject }, message).body)
  }

  private takeTally(message: Msg): void {
    const { from, epoch, body } = this.readEnvelope(message)
    if (from === this.id || !this.seen.see(from, epoch)) return
    for (const name of this.channels.check(from, tally.parse(body)))
      this.channels.add(from, name)?.lose('the channel is not known')
  }

  private subscribeAnswer(subject: string, given: Answer): void {
    given.subscription =
      this.connection?.subscribe(subject, {
        callback: this.safely((message) => {
          void this.sendAnswer(message, given)
        }),
      }) ?? null
  }

  private async sendAnswer(message: Msg, { answer }: Answer): Promise<void> {
    try {
      const reply = await answer(jsonOf(this.unseal({ subject: message.subject }, message)))
      if (reply === undefined || message.reply === undefined) return
      message.respond(this.sealer.seal({ subject: message.reply }, bytesOf(reply)))
    } catch (error) {
      this.warn(error, 'question of another gateway not answered')
    }
  }

  /** A faulty message, perhaps of another version, must not end this process or the connection. */
  private safely(take: (message: Msg) => void): (error: Error | null, message: Msg) => void {
    return (error, message) => {
      try {
        if (error !== null) throw error
        take(message)
      } catch (fault) {
        this.warn(fault, 'message on the bus not understood')
      }
    }
  }

  private post(subject: string, payload: Uint8Array | string, reply?: string): void {
    const { connection } = this
    // Without a connection, the client would keep the message and send it too late.
    if (!this.isUp || connection === null || connection.isClosed()) return
    try {
      const body = typeof payload === 'string' ? Buffer.from(payload) : payload
      const sealed = this.sealer.seal({ subject, reply }, body)
      connection.publish(subject, sealed, reply === undefined ? {} : { reply })
    } catch (error) {
      // The message may be too large for the server. The receiver notices the missing frame.
      this.warn(error, 'message on the bus not sent')
    }
  }

  /** Throws BusRefusal if the message has no valid seal. */
  private unseal(
    place: MessageSubject,
    { data }: Msg,
  ): { readonly from: string; readonly body: Uint8Array } {
    const opened = this.sealer.open(place, data)
    if (!('refusal' in opened)) return opened
    this.refused.set(opened.refusal, (this.refused.get(opened.refusal) ?? 0) + 1)
    throw new BusRefusal(opened.refusal)
  }

  private readEnvelope(message: Msg): z.output<typeof envelope> {
    return envelope.parse(ownWords(this.unseal({ subject: message.subject }, message)))
  }

  /** A server can be configured to accept only messages below PART_BYTES_MAX. */
  private partBytesMax(): number {
    return Math.max(1, Math.min(PART_BYTES_MAX, this.serverBytesMax() - FRAME_HEAD_BYTES))
  }

  private serverBytesMax(): number {
    return this.connection?.info?.max_payload ?? Number.POSITIVE_INFINITY
  }

  private warn(error: unknown, what: string): void {
    const known = this.warnings.get(what)
    const faults = known ?? createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())
    this.warnings.set(what, faults)
    if (faults.isDue()) this.log.warn({ err: error }, what)
  }

  private enveloped(body: unknown): string {
    return JSON.stringify({ ...this.sender(), body })
  }

  private sender(): z.output<z.ZodObject<typeof sender>> {
    return { version: VERSION, from: this.id, epoch: this.epoch }
  }

  private subject(...words: readonly string[]): string {
    return [this.config.subjectPrefix, ...words].join('.')
  }
}

/** A message without a valid seal of the service, or a message that arrived a second time. */
class BusRefusal extends Error {
  override readonly name = 'BusRefusal'

  constructor(refusal: SealRefusal) {
    super(`the message is ${refusal}${REFUSAL_HINTS[refusal]}`)
  }
}

const REFUSAL_HINTS: Readonly<Record<SealRefusal, string>> = {
  unsealed: ': it comes from a stranger',
  forged: ': its sender does not have the key in the database of this service',
  stale: ': the clocks of two gateways are too far apart, or the message was repeated',
  replayed: ': the message was repeated',
}

function bytesOf(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value))
}

function jsonOf({ body }: { readonly body: Uint8Array }): unknown {
  return JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.length).toString())
}

/** Throws BusRefusal if the body names a gateway other than `opened.from` as its sender. */
function ownWords(opened: { readonly from: string; readonly body: Uint8Array }): unknown {
  const value = jsonOf(opened)
  const isOwn = typeof value === 'object' && value !== null && 'from' in value
  if (isOwn && value.from !== opened.from) throw new BusRefusal('forged')
  return value
}

function lastWord(subject: string): string {
  return subject.slice(subject.lastIndexOf('.') + 1)
}

function present<Value>(value: Value | null): Value {
  if (value === null) throw new TypeError('expected a new id')
  return value
}

/** Converts any name to a word of a subject, without blanks, dots or wildcards. */
function tokenOf(name: string): string {
  return Buffer.from(name).toString('base64url') || '-'
}
