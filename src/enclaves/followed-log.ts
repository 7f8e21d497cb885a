import { pause } from '../runtime/loop.ts'
import type { EnclaveClient } from './enclave-client.ts'
import { type EndpointState, isToFollow, isToSettle } from './endpoint-state.ts'

const SETTLE_RETRY_MS = 500

export type LogFollower = {
  waitFor(notary: string, index: number, signal: AbortSignal): Promise<unknown>
  status(): {
    /** True if completions that are sealed now can be committed. */
    readonly isCommitting: boolean
    /** Number of committed leaves. */
    readonly size: number
    /** Why nothing can be committed, or empty. */
    readonly fault: string
  }
  /** Commits the sealed completions, and stops. */
  stop(): Promise<void>
}

type FollowedLogOptions = {
  readonly client: Pick<EnclaveClient, 'askIdentity'>
  readonly state: () => EndpointState
  /** Starts to commit the log of the enclave at this endpoint. */
  readonly follow: () => LogFollower
  /** How long after a call's end the enclave may still seal the call. */
  readonly settleMs: number
  readonly onSettled: (notary: string) => void
}

/** Commits an enclave's log while callers may wait for completions, then the rest of the log. */
export class FollowedLog {
  readonly #options: FollowedLogOptions
  readonly #stopping = new AbortController()
  #follower: LogFollower | null = null
  /** True while #settleOnce checks the log. `tend` starts no follower during this time. */
  #isPaused = false
  #settling: AbortController | null = null

  constructor(options: FollowedLogOptions) {
    this.#options = options
  }

  /** Null while the log is not being committed. */
  status(): ReturnType<LogFollower['status']> | null {
    return this.#follower?.status() ?? null
  }

  /** Starts or ends work on the log, as the endpoint's state requires. */
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

  /** Aborts #settle, and makes `tend` do nothing. The current log is committed until `stop`. */
  stopTending(): void {
    this.#stopping.abort()
    this.#settling?.abort()
  }

  /** Commits the sealed completions, and stops. */
  async stop(): Promise<void> {
    const follower = this.#follower
    this.#follower = null
    await follower?.stop()
  }

  /**
   * Commits everything that the enclave sealed. Waits for `settleMs`, because a call may be sealed
   * after its caller left. Then waits until every leaf is in the database and acknowledged. Stops
   * when the signal is aborted, or when another enclave answers. Never rejects.
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
    // `stop` sends a last pull to the enclave, which acknowledges the committed leaves.
    this.#isPaused = true
    await this.stop()
    const after = await client.askIdentity().catch(() => null)
    // The enclave may have ended by itself. Its whole log is committed, so no completion is
    // missing.
    if (after === null || after.notary !== notary) return 'settled'
    return after.log.size === size && after.log.acknowledged === size ? 'settled' : 'open'
  }

  #resume(): void {
    this.#isPaused = false
    this.tend()
  }
}
