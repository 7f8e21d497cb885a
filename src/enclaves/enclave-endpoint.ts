import { setTimeout as sleep } from 'node:timers/promises'
import type {
  CompletionCall,
  EncryptedCall,
  Identity,
  PullReply,
  PullRequest,
} from '../../enclave/protocol/messages.ts'
import { asError } from '../api/errors.ts'
import type { PassedBody } from '../api/read-body.ts'
import type { Logger } from '../observability/logger.ts'
import { backOffMs } from '../runtime/back-off.ts'
import { pause } from '../runtime/loop.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import type { CheckedIdentity } from './enclave-check.ts'
import {
  type CompletionAnswer,
  EnclaveClient,
  type EnclaveClientOptions,
} from './enclave-client.ts'
import { EnclaveError } from './enclave-errors.ts'
import type { EncryptedAnswer } from './encrypted-answer.ts'
import {
  type EndpointEvent,
  type EndpointPhase,
  type EndpointState,
  isToFollow,
  isToSettle,
  isUsable,
  NEW_ENDPOINT,
  nextState,
  phaseOf,
} from './endpoint-state.ts'

/**
 * Between looks at an enclave that answers: an end, a restart or an end of its release shows this
 * late at most.
 */
const WATCH_INTERVAL_MS = 1_000
/** Pause before an enclave that is out of reach is looked for again. */
const BACKOFF = { minMs: 100, maxMs: 5_000 }
/**
 * An enclave that said nothing for so long, though it was asked who it is, hangs: its calls end.
 * What it has sealed for them is committed when it goes on.
 */
const SILENCE_MAX_MS = 10_000
/** Pause after a log could not be settled. */
const SETTLE_RETRY_MS = 500

/** Commits an enclave's log. */
export type LogFollower = {
  /** Resolves when the leaf is committed. */
  waitFor(notary: string, index: number, signal: AbortSignal): Promise<unknown>
  status(): {
    /** Whether what is sealed now can be committed. */
    readonly isCommitting: boolean
    /** Leaves that are committed. */
    readonly size: number
    /** Why nothing can be committed; empty while it can. */
    readonly fault: string
  }
  /** Commits what is sealed, and follows no more. */
  stop(): Promise<void>
}

export type EndpointOptions = EnclaveClientOptions & {
  /**
   * Gives what makes an enclave none for this gateway now, a sentence each; empty: it is accepted.
   */
  readonly check: (identity: CheckedIdentity) => Promise<readonly string[]>
  /** Whether the notary's log is in the database: then an enclave was accepted with it once. */
  readonly isKnownLog: (notary: string) => Promise<boolean>
  /**
   * Shows an accepted enclave the logs that there are, before its first call. Does nothing when it
   * was shown them.
   */
  readonly introduce: (
    identity: Identity,
    enclave: Pick<EnclaveClient, 'stateBoot'>,
  ) => Promise<void>
  /** Starts to commit the log of the enclave there. */
  readonly follow: (endpoint: EnclaveEndpoint) => LogFollower
  /** How long after the last call its enclave may still seal it, milliseconds. */
  readonly settleMs: number
  /** Default: SILENCE_MAX_MS. */
  readonly silenceMaxMs?: number
  readonly log: Logger
}

/**
 * The enclave at one socket: what it can be asked, what follows its log, and a watch that looks who
 * answers there. Enclaves come and go behind it. One is checked before it is used, again whenever
 * another one answers, and at every look, because releases end.
 */
export class EnclaveEndpoint extends EnclaveClient {
  /** Calls back after each change of state. */
  onChange: () => void = () => undefined
  /** When a call was last given to it: a count of the endpoints together. */
  chosenAt = 0
  /** Looks who answers now, and checks it. Looks at the same time share one. Never rejects. */
  readonly look = singleFlight(() => {
    this.#looking = this.#look()
    return this.#looking
  })
  readonly #options: EndpointOptions
  readonly #notaries = new Set<string>()
  readonly #stopping = new AbortController()
  readonly #now: () => number
  /** What ends each call under way. */
  readonly #underWay = new Set<AbortController>()
  #heardAtMs: number
  /** Looks in vain since it was heard: one is in vain too when this process itself was held up. */
  #silentLooks = 0
  #state = NEW_ENDPOINT
  #lastIdentity: Identity | null = null
  #faults: readonly string[] = []
  #contactFault: Error | null = null
  #follower: LogFollower | null = null
  /** Nothing is followed for now: the log is being settled. */
  #isPaused = false
  /** The process that has the enclave will end it. */
  #isEnding = false
  #lastPulled: Pick<PullReply, 'notary' | 'public_key'> | null = null
  #settling: AbortController | null = null
  #watching: Promise<void> | null = null
  #looking: Promise<void> | null = null
  #nap = new AbortController()

  constructor(options: EndpointOptions) {
    super(options)
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
    this.#heardAtMs = this.#now()
  }

  get state(): EndpointState {
    return this.#state
  }

  get phase(): EndpointPhase {
    return phaseOf(this.#state)
  }

  /** What the enclave said of itself at the last look that it answered, when it was checked. */
  get lastIdentity(): Identity | null {
    return this.#lastIdentity
  }

  /** What the last look failed with. */
  get lastError(): Error | null {
    return this.#contactFault
  }

  /** What commits the log; null when there is nothing to follow. */
  get follower(): LogFollower | null {
    return this.#follower
  }

  /** Whether what is sealed now can be committed. */
  get isCommitting(): boolean {
    return this.#follower?.status().isCommitting ?? false
  }

  /** Whether the notary is, or was, that of an enclave here. */
  hasHeld(notary: string): boolean {
    return this.#notaries.has(notary)
  }

  /** Why it is refused, or out of reach; empty when it is neither. */
  describeFault(): string {
    if (this.#state.contact === 'lost') return this.#contactFault?.message ?? ''
    return this.#state.verdict === 'refused' ? this.#faults.join('; ') : ''
  }

  /** Begins to watch. */
  start(): void {
    this.#watching ??= this.#watch()
  }

  order(order: EndpointState['order']): void {
    this.#apply({ kind: 'ordered', order })
    this.#wake()
  }

  /**
   * Who the enclave is, only while it is the one that was checked and has a log to follow. Throws
   * EnclaveError otherwise.
   */
  override async identity(): Promise<Identity> {
    const isFollowed = ({ notary }: Identity) =>
      notary === this.#state.notary && this.#state.isFollowed
    const identity = await super.identity()
    if (isFollowed(identity)) return identity
    await this.look()
    if (isFollowed(identity)) return identity
    throw new EnclaveError('unavailable', 'the enclave that answers was not accepted')
  }

  /**
   * Makes a call, and counts it until it fails, its answer is whole, a streamed answer is read to
   * its end or left, or the signal is aborted: then also when nobody reads its answer. Ends with
   * EnclaveError `timeout` when the enclave hangs.
   */
  override async complete(
    call: CompletionCall,
    body: Uint8Array,
    signal: AbortSignal,
  ): Promise<CompletionAnswer> {
    return await this.#counted(
      signal,
      (until) => super.complete(call, body, until),
      (answer, track) =>
        answer.kind === 'stream' ? { ...answer, events: track(answer.events) } : null,
    )
  }

  /** The same of an encrypted call. */
  override async encrypted(
    call: EncryptedCall,
    body: Pick<PassedBody, 'stream' | 'fault'>,
    signal: AbortSignal,
  ): Promise<EncryptedAnswer> {
    return await this.#counted(
      signal,
      (until) => super.encrypted(call, body, until),
      (answer, track) =>
        answer.kind === 'answer' ? { ...answer, events: track(answer.events) } : null,
    )
  }

  /**
   * Counts the call that `ask` makes until its signal is aborted. `follow` gives an answer whose
   * events are still to be read, with `track` around them; null for one that is whole.
   */
  async #counted<Answer>(
    signal: AbortSignal,
    ask: (until: AbortSignal) => Promise<Answer>,
    follow: (
      answer: Answer,
      track: <Event>(events: AsyncIterable<Event>) => AsyncIterable<Event>,
    ) => Answer | null,
  ): Promise<Answer> {
    const { call, end } = this.#countCall(signal)
    try {
      const answer = await ask(call.signal)
      this.#hear()
      const followed = follow(answer, (events) => this.#trackEvents(events, end))
      if (followed === null) end()
      return followed ?? answer
    } catch (error) {
      end()
      this.#note(error)
      throw error
    }
  }

  /** Counts a call until `end` is called, it is aborted, or its enclave is silent for too long. */
  #countCall(signal: AbortSignal): { readonly call: AbortController; readonly end: () => void } {
    const call = new AbortController()
    const leave = () => call.abort(signal.reason)
    const end = () => {
      if (!this.#underWay.delete(call)) return
      signal.removeEventListener('abort', leave)
      this.#apply({ kind: 'call_ended' })
    }
    this.#underWay.add(call)
    this.#apply({ kind: 'call_began' })
    signal.addEventListener('abort', leave)
    call.signal.addEventListener('abort', end)
    if (signal.aborted) leave()
    return { call, end }
  }

  #hear(): void {
    this.#heardAtMs = this.#now()
    this.#silentLooks = 0
  }

  /** After a look in vain: ends all calls when the enclave has been silent for too long. */
  #endSilentCalls(fault: unknown): void {
    const { silenceMaxMs = SILENCE_MAX_MS, log } = this.#options
    if (!(fault instanceof EnclaveError && fault.code === 'timeout')) return
    this.#silentLooks += 1
    const silentMs = this.#now() - this.#heardAtMs
    const isHung = this.#silentLooks > 1 && silentMs >= silenceMaxMs
    if (!isHung || this.#underWay.size === 0) return
    log.error(
      { enclave: this.socketPath, calls: this.#underWay.size, silentMs: Math.round(silentMs) },
      'enclave hangs: its calls are ended',
    )
    const error = new EnclaveError('timeout', 'the enclave hangs: it no longer answers')
    for (const call of this.#underWay) call.abort(error)
  }

  /**
   * As the client's. After `expectEnd`, an enclave that is out of reach is no fault: it ends in
   * good order, when all it sealed is committed, so its pulls are answered with nothing more.
   */
  override async pull(request: PullRequest, signal: AbortSignal): Promise<PullReply> {
    try {
      const reply = await super.pull(request, signal)
      this.#hear()
      this.#lastPulled = { notary: reply.notary, public_key: reply.public_key }
      return reply
    } catch (error) {
      if (!this.#isEnding || this.#lastPulled === null || signal.aborted) throw error
      await sleep(request.wait_ms, undefined, { signal })
      return { ...this.#lastPulled, head: null, completions: [], documents: {} }
    }
  }

  /** The enclave is about to be ended in good order, by this process. */
  expectEnd(): void {
    this.#isEnding = true
  }

  /** Ends the watch. What follows the log goes on until `stopFollowing`. */
  async stopWatching(): Promise<void> {
    this.#stopping.abort()
    this.#settling?.abort()
    this.#wake()
    await this.#watching
    await this.#looking
  }

  /** Commits what is sealed, and follows no more. */
  async stopFollowing(): Promise<void> {
    const follower = this.#follower
    this.#follower = null
    await follower?.stop()
  }

  /** Only the enclave that was checked gets calls. */
  protected override isExpected({ notary }: Identity): boolean {
    return notary === this.#state.notary && this.#state.verdict === 'accepted'
  }

  async *#trackEvents<Event>(events: AsyncIterable<Event>, end: () => void): AsyncGenerator<Event> {
    try {
      for await (const event of events) {
        this.#hear()
        yield event
      }
    } catch (error) {
      this.#note(error)
      throw error
    } finally {
      end()
    }
  }

  /** What a call failed with may say that another enclave answers by now, or none. */
  #note(error: unknown): void {
    if (!(error instanceof EnclaveError)) return
    if (!error.wasSent) {
      this.#contactFault = error
      this.#apply({ kind: 'lost' })
    }
    this.#wake()
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stopping
    let failures = 0
    while (!signal.aborted) {
      await this.look()
      failures = this.#state.contact === 'lost' ? failures + 1 : 0
      const delayMs =
        failures === 0 ? WATCH_INTERVAL_MS : backOffMs(failures, BACKOFF, { jitter: 'none' })
      if (!signal.aborted) await pause(delayMs, this.#nap.signal)
    }
  }

  /** Ends the pause of the watch: it looks at once. */
  #wake(): void {
    this.#nap.abort()
    this.#nap = new AbortController()
  }

  async #look(): Promise<void> {
    const { check, introduce, isKnownLog } = this.#options
    try {
      const identity = await this.#askIdentity()
      this.#hear()
      const { notary } = identity
      const faults = await check(identity)
      if (faults.length === 0) await introduce(identity, this)
      const isKnown = notary !== this.#state.notary && (await isKnownLog(notary))
      this.#notaries.add(notary)
      this.#lastIdentity = identity
      this.#faults = faults
      this.#contactFault = null
      this.#apply({ kind: 'answered', notary, isAccepted: faults.length === 0, isKnown })
    } catch (error) {
      this.#contactFault = asError(error)
      this.#apply({ kind: 'lost' })
      this.#endSilentCalls(error)
    }
  }

  /** Whoever answers, accepted or not. */
  #askIdentity(): Promise<Identity> {
    this.forgetIdentity()
    return super.identity()
  }

  #apply(event: EndpointEvent): void {
    const before = this.phase
    this.#state = nextState(this.#state, event)
    if (this.phase !== before) this.#report()
    this.#tend()
    this.onChange()
  }

  /** Starts and ends what the state asks for. */
  #tend(): void {
    if (this.#stopping.signal.aborted) return
    if (isToFollow(this.#state) && !this.#isPaused) this.#follow()
    if (!isToSettle(this.#state)) this.#settling?.abort()
    else if (this.#settling === null) {
      this.#settling = new AbortController()
      void this.#settle(this.#settling.signal)
    }
  }

  #follow(): void {
    if (this.#follower !== null) return
    this.#lastPulled = null
    this.#follower = this.#options.follow(this)
  }

  /**
   * Sees to it that all that the enclave sealed is committed, when no call is under way and none
   * comes any more: waits for `settleMs`, because a call that its caller left may be sealed a
   * moment later, then until every leaf is in the database and acknowledged. Gives up when the
   * signal is aborted, or another enclave answers. Never rejects.
   */
  async #settle(signal: AbortSignal): Promise<void> {
    const { notary } = this.#state
    let outcome: 'settled' | 'open' | 'replaced' = 'open'
    let delayMs = this.#options.settleMs
    while (outcome === 'open' && !signal.aborted) {
      await pause(delayMs, signal)
      if (signal.aborted) break
      delayMs = SETTLE_RETRY_MS
      outcome = await this.#settleOnce(notary, signal).catch(() => 'open' as const)
      if (outcome === 'open') this.#resumeFollowing()
    }
    if (outcome === 'settled' && !signal.aborted && notary !== null)
      this.#apply({ kind: 'settled', notary })
    this.#settling = null
    this.#resumeFollowing()
  }

  async #settleOnce(
    notary: string | null,
    signal: AbortSignal,
  ): Promise<'settled' | 'open' | 'replaced'> {
    const before = await this.#askIdentity()
    if (before.notary !== notary) return 'replaced'
    const { size } = before.log
    if (size > 0) {
      if (this.#follower === null) return 'open'
      await this.#follower.waitFor(notary, size - 1, signal)
    }
    // The last pull acknowledges what is committed.
    this.#isPaused = true
    await this.stopFollowing()
    const after = await this.#askIdentity().catch(() => null)
    // One that ended by itself, after all of it was committed, had nothing left.
    if (after === null || after.notary !== notary) return 'settled'
    return after.log.size === size && after.log.acknowledged === size ? 'settled' : 'open'
  }

  #resumeFollowing(): void {
    this.#isPaused = false
    this.#tend()
  }

  #report(): void {
    const { phase, socketPath } = this
    const { log } = this.#options
    const facts = { enclave: socketPath, notary: this.#state.notary, state: phase }
    const fault = this.describeFault()
    if (isUsable(this.#state)) log.info(facts, 'enclave in use')
    else if (phase === 'refused')
      log.error({ ...facts, fault }, 'enclave refused: it gets no calls')
    else if (phase === 'unreachable')
      log.warn({ ...facts, fault }, 'enclave out of reach, looking for it')
    else if (fault === '') log.info(facts, `enclave ${phase}`)
    else log.error({ ...facts, fault }, `enclave ${phase}: it gets no more calls`)
  }
}
