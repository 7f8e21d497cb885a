import { readFile } from 'node:fs/promises'
import {
  connect,
  credsAuthenticator,
  type Msg,
  type NatsConnection,
  type Subscription,
} from '@nats-io/transport-node'
import { z } from 'zod'
import type { Logger } from '../observability/logger.ts'
import { backOffMs } from '../runtime/back-off.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import { pause } from '../runtime/loop.ts'
import { type Channel, createChannel, type OpenChannel } from './channel.ts'
import type { BusConfig } from './settings.ts'

/** How often a gateway says that it is there. */
const PRESENCE_INTERVAL_MS = 1_000
/** A gateway that was not heard of for so long is gone, and with it its calls. */
export const PRESENCE_EXPIRES_MS = 3_500
/** Two pings without an answer: the server hangs. */
const PING_INTERVAL_MS = 2_000
const CONNECT_TIMEOUT_MS = 5_000
const RECONNECT_PAUSE_MS = 250
/** Channels of one gateway: as many calls of others as it serves at once. */
export const CHANNELS_MAX = 10_000
/** While a fault lasts, it is logged again only this often. */
const FAULT_LOG_INTERVAL_MS = 30_000

/** What all gateways of a service hear: a JSON value, from the gateway `from`. */
type Listener = (from: string, message: unknown) => void

/** Serves a channel that another gateway opened. What it throws ends the channel, untold. */
type Serve = (channel: Channel, header: unknown) => Promise<void>

/**
 * What connects the gateways of one service. Everything on it may be lost, and is then seen to be.
 */
export type Bus = {
  /** This gateway on the bus; another one after each start. */
  readonly id: string
  /** Tells the other gateways; those that cannot hear it now are told nothing. */
  publish(topic: string, message: unknown): void
  listen(topic: string, listener: Listener): void
  /** The other gateways that were heard of lately. */
  peers(): readonly string[]
  /** Calls back when a gateway is gone; all are when the server is. */
  onGone(listener: (peer: string) => void): void
  /** Calls back when a gateway has come. */
  onCome(listener: (peer: string) => void): void
  /** Opens a channel to another gateway, for what it serves by this name. */
  open(peer: string, service: string, header: unknown): Channel
  serve(service: string, serve: Serve): void
  /**
   * Answers what others ask of something that this gateway alone has; gives what ends that. A JSON
   * value each way.
   */
  answer(topic: string, name: string, answer: (question: unknown) => Promise<unknown>): () => void
  /** Asks whoever has it; null when nobody has, or nobody answers in time. */
  ask(
    topic: string,
    name: string,
    asked: { question: unknown; timeoutMs: number },
  ): Promise<unknown>
  status(): BusStatus
  /** Says that this gateway is gone, and ends all. */
  stop(): Promise<void>
}

export type BusStatus = {
  readonly isUp: boolean
  readonly peers: number
  readonly channels: number
}

const envelope = z.object({ from: z.string(), epoch: z.int(), body: z.unknown() })
const opening = z.object({
  from: z.string(),
  epoch: z.int(),
  service: z.string(),
  header: z.unknown(),
})

/**
 * Connects to the servers, in the background and again whenever the connection ends: a gateway
 * starts without them, and serves what it has itself.
 */
export function startBus(
  config: BusConfig,
  { makeId, log }: { readonly makeId: () => string; readonly log: Logger },
): Bus {
  return new NatsBus(config, makeId, log)
}

type Peer = { seenAtMs: number; epoch: number }

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
  private readonly faultLog = createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())
  private readonly stopping = new AbortController()
  private readonly peersSeen = new Map<string, Peer>()
  private readonly channels = new Map<string, OpenChannel>()
  private readonly listeners = new Map<string, Listener[]>()
  private readonly services = new Map<string, Serve>()
  private readonly answers = new Map<string, Answer>()
  private readonly goneListeners: ((peer: string) => void)[] = []
  private readonly comeListeners: ((peer: string) => void)[] = []
  private readonly timer: NodeJS.Timeout
  private readonly running: Promise<void>
  private connection: NatsConnection | null = null
  private isUp = false
  /** Counts the connections to servers: what was under way on an earlier one is lost. */
  private epoch = 0

  constructor(config: BusConfig, makeId: () => string, log: Logger) {
    this.config = config
    this.makeId = makeId
    this.log = log
    this.id = makeId()
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
    return [...this.peersSeen.keys()]
  }

  onGone(listener: (peer: string) => void): void {
    this.goneListeners.push(listener)
  }

  onCome(listener: (peer: string) => void): void {
    this.comeListeners.push(listener)
  }

  open(peer: string, service: string, header: unknown): Channel {
    const name = this.makeId()
    const channel = this.addChannel(peer, name)
    const text = JSON.stringify({ from: this.id, epoch: this.epoch, service, header })
    if (!this.isUp || !this.peersSeen.has(peer)) channel.lose('the other gateway is gone')
    // Where nobody hears it, the server says so on the channel's own subject.
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
      const reply = await this.connection.request(subject, JSON.stringify(question), { timeout })
      return reply.json()
    } catch {
      return null
    }
  }

  status(): BusStatus {
    return { isUp: this.isUp, peers: this.peersSeen.size, channels: this.channels.size }
  }

  async stop(): Promise<void> {
    clearInterval(this.timer)
    this.post(this.subject('all', 'gone'), this.enveloped(null))
    this.stopping.abort()
    await this.connection?.flush().catch(() => undefined)
    this.fall('this gateway stops')
    await this.connection?.close()
    await this.running
  }

  /** Connects, and connects again should the client ever give up. */
  private async run(): Promise<void> {
    const { signal } = this.stopping
    for (let failures = 1; !signal.aborted; failures++) {
      try {
        await this.follow(await this.connect())
        failures = 0
      } catch (error) {
        if (this.faultLog.isDue())
          this.log.error({ err: error }, 'bus cannot be used, trying again')
      }
      await pause(backOffMs(failures, { minMs: 250, maxMs: 10_000 }, { jitter: 'half' }), signal)
    }
  }

  private async connect(): Promise<NatsConnection> {
    const { servers, credentialsFile, caFile, subjectPrefix } = this.config
    const tls = caFile === null ? {} : { tls: { caFile } }
    const connecting = connect({
      ...tls,
      ...(credentialsFile === null
        ? {}
        : { authenticator: credsAuthenticator(await readFile(credentialsFile)) }),
      servers: [...servers],
      name: `affidavit gateway ${this.id}`,
      inboxPrefix: `${subjectPrefix}.inbox.${this.id}`,
      noEcho: true,
      timeout: CONNECT_TIMEOUT_MS,
      pingInterval: PING_INTERVAL_MS,
      reconnectTimeWait: RECONNECT_PAUSE_MS,
      maxReconnectAttempts: -1,
      ignoreAuthErrorAbort: true,
    })
    const connection = await connecting
    if (this.stopping.signal.aborted) await connection.close()
    return connection
  }

  /** Serves a connection, until it is closed for good. */
  private async follow(connection: NatsConnection): Promise<void> {
    this.connection = connection
    const hear = (subject: string, take: (message: Msg) => void) =>
      connection.subscribe(subject, { callback: this.safely(take) })
    hear(this.subject('all', '*'), (message) => this.takeBroadcast(message))
    hear(this.subject('open', this.id), (message) => this.takeOpening(message))
    hear(this.subject('channel', this.id, '*'), (message) => this.takeFrame(message))
    for (const [subject, given] of this.answers) this.subscribeAnswer(subject, given)
    this.rise()
    for await (const status of connection.status()) {
      if (status.type === 'reconnect') this.rise()
      else if (status.type === 'disconnect') this.fall('the connection to the bus ended')
      else if (status.type === 'error' && this.faultLog.isDue(status.error.message))
        this.log.warn({ err: status.error }, 'the bus told an error')
    }
    this.fall('the connection to the bus was closed')
    this.connection = null
  }

  /** A connection stands, with whom nobody knows yet. */
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
    for (const channel of [...this.channels.values()]) channel.lose(why)
    for (const peer of this.peers()) this.forget(peer, why)
  }

  private tend(): void {
    const nowMs = performance.now()
    for (const [peer, { seenAtMs }] of this.peersSeen)
      if (nowMs - seenAtMs > PRESENCE_EXPIRES_MS) this.forget(peer, 'it fell silent')
    this.announce()
  }

  private announce(): void {
    this.publish('here', null)
  }

  private see(peer: string, epoch: number): void {
    const known = this.peersSeen.get(peer)
    // What was under way to its earlier connection is lost.
    if (known !== undefined && known.epoch !== epoch) this.forget(peer, 'it connected anew')
    const isNew = !this.peersSeen.has(peer)
    this.peersSeen.set(peer, { seenAtMs: performance.now(), epoch })
    if (!isNew) return
    this.log.info({ peer }, 'gateway of this service found')
    this.announce()
    for (const listener of this.comeListeners) listener(peer)
  }

  private forget(peer: string, why: string): void {
    if (!this.peersSeen.delete(peer)) return
    this.log.info({ peer, why }, 'gateway of this service gone')
    for (const channel of [...this.channels.values()]) if (channel.peer === peer) channel.lose(why)
    for (const listener of this.goneListeners) listener(peer)
  }

  private takeBroadcast(message: Msg): void {
    const { from, epoch, body } = envelope.parse(message.json())
    if (from === this.id) return
    const topic = message.subject.slice(message.subject.lastIndexOf('.') + 1)
    if (topic === 'gone') {
      this.forget(from, 'it stopped')
      return
    }
    this.see(from, epoch)
    for (const listener of this.listeners.get(topic) ?? []) listener(from, body)
  }

  private takeOpening(message: Msg): void {
    const { from, epoch, service, header } = opening.parse(message.json())
    const name = message.reply?.slice(message.reply.lastIndexOf('.') + 1)
    if (name === undefined) return
    this.see(from, epoch)
    const channel = this.addChannel(from, name)
    const serve = this.services.get(service)
    if (serve === undefined || this.channels.size > CHANNELS_MAX) {
      channel.abort({ code: serve === undefined ? 'unknown_service' : 'overloaded' })
      return
    }
    serve(channel, header).catch((error: unknown) => {
      if (!channel.signal.aborted)
        this.log.error({ err: error, peer: from, service }, 'call of another gateway failed')
      channel.abort(null)
    })
  }

  private takeFrame(message: Msg): void {
    const name = message.subject.slice(message.subject.lastIndexOf('.') + 1)
    const channel = this.channels.get(name)
    // No responders: the server says so where the answer would have come.
    if (message.headers?.code === 503) channel?.lose('the other gateway is gone')
    else channel?.receive(message.data)
  }

  private addChannel(peer: string, name: string): OpenChannel {
    const subject = this.subject('channel', peer, name)
    const channel = createChannel({
      peer,
      publish: (frame) => this.post(subject, frame),
      onOver: () => this.channels.delete(name),
    })
    this.channels.set(name, channel)
    return channel
  }

  private subscribeAnswer(subject: string, given: Answer): void {
    given.subscription =
      this.connection?.subscribe(subject, {
        callback: this.safely((message) => {
          const answered = given.answer(message.json())
          answered.then(
            (answer) => message.respond(JSON.stringify(answer ?? null)),
            (error: unknown) => this.log.error({ err: error }, 'question of a gateway failed'),
          )
        }),
      }) ?? null
  }

  /** What comes is another gateway's, and may be of another version: it ends nothing. */
  private safely(take: (message: Msg) => void): (error: Error | null, message: Msg) => void {
    return (error, message) => {
      try {
        if (error !== null) throw error
        take(message)
      } catch (fault) {
        if (this.faultLog.isDue('message'))
          this.log.warn({ err: fault }, 'message on the bus not understood')
      }
    }
  }

  private post(subject: string, payload: Uint8Array | string, reply?: string): void {
    const { connection } = this
    // The client would keep it, and send it to the next server, too late.
    if (!this.isUp || connection === null || connection.isClosed()) return
    connection.publish(subject, payload, reply === undefined ? {} : { reply })
  }

  private enveloped(body: unknown): string {
    return JSON.stringify({ from: this.id, epoch: this.epoch, body })
  }

  private subject(...words: readonly string[]): string {
    return [this.config.subjectPrefix, ...words].join('.')
  }
}

/** A word of a subject, which has no blanks, dots and wildcards, for a name that may have them. */
function tokenOf(name: string): string {
  return Buffer.from(name).toString('base64url') || '-'
}
