import { setTimeout as sleep } from 'node:timers/promises'
import type { CompletionCall, Identity } from '../../enclave/protocol/messages.ts'
import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import type { Committer } from '../verified/committer.ts'
import type { AttestingEnclave } from './attesting.ts'
import type { CompletionAnswer, EnclaveClient } from './enclave-client.ts'
import { EnclaveError } from './enclave-error.ts'
import {
  isToFollow,
  isToSettle,
  isUsable,
  NEW_SEAT,
  nextSeat,
  phaseOf,
  type SeatEvent,
  type SeatPhase,
  type SeatState,
} from './seat-state.ts'
import { settleSeat } from './settle-seat.ts'
import { trackCall } from './track-call.ts'

/** Between looks at an enclave that answers: an end, a restart or an end of its release shows this late at most. */
export const WATCH_INTERVAL_MS = 1_000
/** Pause before an enclave that is out of reach is looked for again: doubled from the first to the second. */
export const BACKOFF_MIN_MS = 100
export const BACKOFF_MAX_MS = 5_000

/** What follows an enclave's log: its commits and its attestations. */
export type Following = { readonly committer: Committer; stop(): Promise<void> }

/** The enclave as what follows its log sees it: answers only for a notary whose log is to be followed. */
export type FollowedEnclave = Pick<EnclaveClient, 'identity' | 'forgetIdentity' | 'pull' | 'attestHead'>

export type SeatOptions = {
  /** Absolute path of the Unix socket. */
  readonly socketPath: string
  /** Opens a client whose completion calls go only to an enclave that `isExpected`. */
  readonly openClient: (isExpected: (identity: Identity) => boolean) => EnclaveClient
  /** Gives what makes an enclave none for this gateway now, a sentence each; empty: it is accepted. */
  readonly check: (identity: Identity) => Promise<readonly string[]>
  /** Whether the notary's log is in the database: then an enclave was accepted with it once. */
  readonly isKnownLog: (notary: string) => Promise<boolean>
  /**
   * Shows an accepted enclave the logs that there are, before its first call. Does nothing when it
   * was shown them.
   */
  readonly introduce: (identity: Identity, client: EnclaveClient) => Promise<void>
  readonly follow: (enclave: FollowedEnclave) => Following
  /** How long after the last call its enclave may still seal it, milliseconds. */
  readonly settleMs: number
  readonly log: Logger
}

/**
 * One seat with what hangs on it: the client of its socket, what follows the log, and a watch that looks who answers there. An
 * enclave is checked before it is used, again whenever another one answers, and at every look, because releases end.
 */
export class Seat {
  readonly socketPath: string
  readonly client: EnclaveClient
  /** Calls back after each change of state. */
  onChange: () => void = () => undefined
  /** When a call was last given to it: a count of the seats together. */
  chosenAt = 0
  private readonly options: SeatOptions
  private current: SeatState = NEW_SEAT
  private readonly notaries = new Set<string>()
  private known: Identity | null = null
  private faults: readonly string[] = []
  private contactFault: Error | null = null
  private following: Following | null = null
  /** Nothing is followed for now: the log is being settled. */
  private isPaused = false
  private settling: AbortController | null = null
  private looking: Promise<void> | null = null
  private watching: Promise<void> | null = null
  private readonly stopping = new AbortController()
  private nap = new AbortController()

  constructor(options: SeatOptions) {
    this.options = options
    this.socketPath = options.socketPath
    this.client = options.openClient(
      ({ notary }) => notary === this.current.notary && this.current.verdict === 'accepted',
    )
  }

  get state(): SeatState {
    return this.current
  }

  get phase(): SeatPhase {
    return phaseOf(this.current)
  }

  /** Identity of the enclave that answered last, when it was checked. */
  get identity(): Identity | null {
    return this.known
  }

  /** What follows the log; null when there is nothing to follow. */
  get committer(): Committer | null {
    return this.following?.committer ?? null
  }

  /** Whether the notary is, or was, that of an enclave here. */
  hasHeld(notary: string): boolean {
    return this.notaries.has(notary)
  }

  /** Why it is refused, or out of reach; empty when it is neither. */
  describeFault(): string {
    if (this.current.contact === 'lost') return this.contactFault?.message ?? ''
    return this.current.verdict === 'refused' ? this.faults.join('; ') : ''
  }

  /** What the last look failed with. */
  get lastError(): Error | null {
    return this.contactFault
  }

  /** Begins to watch. */
  start(): void {
    this.watching ??= this.watch()
  }

  /** Looks who answers now, and checks it. Looks at the same time share one. Never rejects. */
  look(): Promise<void> {
    this.looking ??= this.lookOnce().finally(() => {
      this.looking = null
    })
    return this.looking
  }

  order(order: SeatState['order']): void {
    this.apply({ kind: 'ordered', order })
    this.wake()
  }

  /** The enclave for attestation documents: says who it is only while that is the one that was checked. */
  attesting(): AttestingEnclave {
    const { client } = this
    return {
      forgetIdentity: () => client.forgetIdentity(),
      attestation: (nonce) => client.attestation(nonce),
      identity: async () => {
        const identity = await client.identity()
        if (identity.notary !== this.current.notary) await this.look()
        if (identity.notary === this.current.notary && this.current.isFollowed) return identity
        throw new EnclaveError('unavailable', 'the enclave that answers was not accepted')
      },
    }
  }

  /** Makes a call, and counts it until its answer is read. Throws what the client throws. */
  complete(call: CompletionCall, body: Uint8Array, signal: AbortSignal): Promise<CompletionAnswer> {
    return trackCall(() => this.client.complete(call, body, signal), {
      signal,
      onBegin: () => this.apply({ kind: 'call_began' }),
      onEnd: () => this.apply({ kind: 'call_ended' }),
      onError: (error) => this.note(error),
    })
  }

  /** Ends the watch. What follows the log goes on until `stopFollowing`. */
  async stopWatching(): Promise<void> {
    this.stopping.abort()
    this.settling?.abort()
    this.wake()
    await this.watching
    await this.looking
  }

  /** Commits what is sealed, and follows no more. */
  async stopFollowing(): Promise<void> {
    const { following } = this
    this.following = null
    await following?.stop()
  }

  /** The same, until `resumeFollowing`. */
  async pauseFollowing(): Promise<void> {
    this.isPaused = true
    await this.stopFollowing()
  }

  resumeFollowing(): void {
    this.isPaused = false
    this.tend()
  }

  /** Ends the watch soon: it looks at once. */
  wake(): void {
    this.nap.abort()
    this.nap = new AbortController()
  }

  private async watch(): Promise<void> {
    const { signal } = this.stopping
    let failures = 0
    while (!signal.aborted) {
      await this.look()
      failures = this.current.contact === 'lost' ? failures + 1 : 0
      const backoffMs = Math.min(BACKOFF_MAX_MS, BACKOFF_MIN_MS * 2 ** Math.min(failures - 1, 16))
      const delayMs = failures === 0 ? WATCH_INTERVAL_MS : backoffMs
      if (!signal.aborted) await sleep(delayMs, null, { signal: this.nap.signal }).catch(() => undefined)
    }
  }

  private async lookOnce(): Promise<void> {
    try {
      this.client.forgetIdentity()
      const identity = await this.client.identity()
      const { notary } = identity
      const faults = await this.options.check(identity)
      if (faults.length === 0) await this.options.introduce(identity, this.client)
      const isKnown = notary !== this.current.notary && (await this.options.isKnownLog(notary))
      this.notaries.add(notary)
      this.known = identity
      this.faults = faults
      this.contactFault = null
      this.apply({ kind: 'answered', notary, isAccepted: faults.length === 0, isKnown })
    } catch (error) {
      this.contactFault = asError(error)
      this.apply({ kind: 'lost' })
    }
  }

  private note(error: unknown): void {
    if (!(error instanceof EnclaveError)) return
    if (!error.wasSent) {
      this.contactFault = error
      this.apply({ kind: 'lost' })
    }
    this.wake()
  }

  private apply(event: SeatEvent): void {
    const before = this.phase
    this.current = nextSeat(this.current, event)
    if (this.phase !== before) this.report()
    this.tend()
    this.onChange()
  }

  /** Starts and ends what the state asks for. */
  private tend(): void {
    if (this.stopping.signal.aborted) return
    if (isToFollow(this.current) && !this.isPaused) this.following ??= this.options.follow(this.followed())
    if (!isToSettle(this.current)) this.settling?.abort()
    else if (this.settling === null) this.settle()
  }

  private settle(): void {
    const settling = new AbortController()
    this.settling = settling
    settleSeat(this, { settleMs: this.options.settleMs, signal: settling.signal })
      .then((notary) => {
        if (notary !== null) this.apply({ kind: 'settled', notary })
      })
      .finally(() => {
        this.settling = null
        this.resumeFollowing()
      })
  }

  private followed(): FollowedEnclave {
    const { client } = this
    const isFollowed = (notary: string) => notary === this.current.notary && isToFollow(this.current)
    return {
      forgetIdentity: () => client.forgetIdentity(),
      pull: (request, signal) => client.pull(request, signal),
      attestHead: (hash, signal) => client.attestHead(hash, signal),
      identity: async () => {
        const identity = await client.identity()
        if (isFollowed(identity.notary)) return identity
        await this.look()
        if (isFollowed(identity.notary)) return identity
        throw new EnclaveError('unavailable', 'the enclave that answers was not accepted')
      },
    }
  }

  private report(): void {
    const { phase, socketPath } = this
    const facts = { enclave: socketPath, notary: this.current.notary, state: phase }
    const fault = this.describeFault()
    if (isUsable(this.current)) this.options.log.info(facts, 'enclave in use')
    else if (phase === 'refused')
      this.options.log.error({ ...facts, fault }, 'enclave refused: it gets no calls')
    else if (phase === 'unreachable')
      this.options.log.warn({ ...facts, fault }, 'enclave out of reach, looking for it')
    else if (fault === '') this.options.log.info(facts, `enclave ${phase}`)
    else this.options.log.error({ ...facts, fault }, `enclave ${phase}: it gets no more calls`)
  }
}
