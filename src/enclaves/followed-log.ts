import { pause } from '../runtime/loop.ts'
import type { EnclaveClient } from './enclave-client.ts'
import { type EndpointState, isToFollow, isToSettle } from './endpoint-state.ts'

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

export type FollowedLogOptions = {
  readonly client: Pick<EnclaveClient, 'askIdentity'>
  /** Of the endpoint. */
  readonly state: () => EndpointState
  /** Starts to commit the log of the enclave there. */
  readonly follow: () => LogFollower
  /** How long after the last call its enclave may still seal it, milliseconds. */
  readonly settleMs: number
  readonly onSettled: (notary: string) => void
}

/**
 * The log of the enclave at an endpoint: it is followed while it may hold what callers wait for,
 * and settled when no more calls come.
 */
export class FollowedLog {
  readonly #options: FollowedLogOptions
  readonly #stopping = new AbortController()
  #follower: LogFollower | null = null
  /** Nothing is followed for now: the log is being settled. */
  #isPaused = false
  #settling: AbortController | null = null

  constructor(options: FollowedLogOptions) {
    this.#options = options
  }

  /** What the follower says; null when there is nothing to follow. */
  status(): ReturnType<LogFollower['status']> | null {
    return this.#follower?.status() ?? null
  }

  /** Starts and ends what the endpoint's state asks for. */
  tend(): void {
    if (this.#stopping.signal.aborted) return
    const { state, follow } = this.#options
    if (isToFollow(state()) && !this.#isPaused) this.#follower ??= follow()
    if (!isToSettle(state())) this.#settling?.abort()
    else if (this.#settling === null) {
      this.#settling = new AbortController()
      void this.#settle(this.#settling.signal)
    }
  }

  /** Settles no more, and starts to follow nothing. What is followed is followed until `stop`. */
  stopTending(): void {
    this.#stopping.abort()
    this.#settling?.abort()
  }

  /** Commits what is sealed, and follows no more. */
  async stop(): Promise<void> {
    const follower = this.#follower
    this.#follower = null
    await follower?.stop()
  }

  /**
   * Sees to it that all that the enclave sealed is committed, when no call is under way and no more
   * calls come: waits for `settleMs`, because a call that its caller left may be sealed a moment
   * later, then until every leaf is in the database and acknowledged. Gives up when the signal is
   * aborted, or another enclave answers. Never rejects.
   */
  async #settle(signal: AbortSignal): Promise<void> {
    const { state, settleMs, onSettled } = this.#options
    const { notary } = state()
    let outcome: 'settled' | 'open' | 'replaced' = 'open'
    let delayMs = settleMs
    while (outcome === 'open' && !signal.aborted) {
      await pause(delayMs, signal)
      if (signal.aborted) break
      delayMs = SETTLE_RETRY_MS
      outcome = await this.#settleOnce(notary, signal).catch(() => 'open' as const)
      if (outcome === 'open') this.#resume()
    }
    if (outcome === 'settled' && !signal.aborted && notary !== null) onSettled(notary)
    this.#settling = null
    this.#resume()
  }

  async #settleOnce(
    notary: string | null,
    signal: AbortSignal,
  ): Promise<'settled' | 'open' | 'replaced'> {
    const { client } = this.#options
    const before = await client.askIdentity()
    if (before.notary !== notary) return 'replaced'
    const { size } = before.log
    if (size > 0) {
      if (this.#follower === null) return 'open'
      await this.#follower.waitFor(notary, size - 1, signal)
    }
    // The last pull acknowledges what is committed.
    this.#isPaused = true
    await this.stop()
    const after = await client.askIdentity().catch(() => null)
    // An enclave that ended by itself, after all of its log was committed, had nothing left.
    if (after === null || after.notary !== notary) return 'settled'
    return after.log.size === size && after.log.acknowledged === size ? 'settled' : 'open'
  }

  #resume(): void {
    this.#isPaused = false
    this.tend()
  }
}
