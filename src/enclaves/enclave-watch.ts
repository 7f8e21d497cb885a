import type { Identity } from '../../enclave/protocol/messages.ts'
import { asError } from '../api/errors.ts'
import { backOffMs } from '../runtime/back-off.ts'
import { createLoop } from '../runtime/loop.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import type { CheckedIdentity } from './enclave-check.ts'
import type { EnclaveClient } from './enclave-client.ts'
import type { EndpointEvent } from './endpoint-state.ts'

/**
 * Between looks at an enclave that answers: an end, a restart or an end of its release shows this
 * late at most.
 */
const WATCH_INTERVAL_MS = 1_000
/** Pause before an enclave that is out of reach is looked for again. */
const BACKOFF = { minMs: 100, maxMs: 5_000 }

/** What decides whether an enclave is used. */
export type EnclaveChecks = {
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
}

export type EnclaveWatchOptions = EnclaveChecks & {
  readonly client: Pick<EnclaveClient, 'askIdentity' | 'stateBoot'>
  /** Called after each look, and when a call found that the enclave is out of reach. */
  readonly onFound: (found: Extract<EndpointEvent, { kind: 'answered' | 'lost' }>) => void
  /** Called with what a look failed with. */
  readonly onVainLook: (error: Error) => void
}

/**
 * Looks who answers at a socket, every second, and checks it: before it is used, again whenever
 * another enclave answers, and at every look, because releases end.
 */
export class EnclaveWatch {
  /** Looks now. Looks at the same time share one. Never rejects. */
  readonly look = singleFlight(() => {
    this.#looking = this.#look()
    return this.#looking
  })
  readonly #options: EnclaveWatchOptions
  readonly #loop = createLoop(() => this.#round())
  #looking: Promise<void> | null = null
  #failures = 0
  #identity: Identity | null = null
  #faults: readonly string[] = []
  #error: Error | null = null

  constructor(options: EnclaveWatchOptions) {
    this.#options = options
  }

  /** What the enclave said of itself at the last look that it answered, when it was checked. */
  get identity(): Identity | null {
    return this.#identity
  }

  /** What makes that enclave none for this gateway. */
  get faults(): readonly string[] {
    return this.#faults
  }

  /** What the last look, or a call since then, failed with. */
  get error(): Error | null {
    return this.#error
  }

  start(): void {
    this.#loop.start()
  }

  /** Ends the pause until the next look. */
  wake(): void {
    this.#loop.wake()
  }

  /** Notes that the enclave is out of reach. */
  lose(error: Error): void {
    this.#error = error
    this.#options.onFound({ kind: 'lost' })
  }

  /** Ends the watch. Resolves when no look is under way. */
  async stop(): Promise<void> {
    await this.#loop.stop()
    await this.#looking
  }

  async #round(): Promise<number> {
    await this.look()
    this.#failures = this.#error === null ? 0 : this.#failures + 1
    return this.#failures === 0
      ? WATCH_INTERVAL_MS
      : backOffMs(this.#failures, BACKOFF, { jitter: 'none' })
  }

  async #look(): Promise<void> {
    const { client, check, introduce, isKnownLog, onFound, onVainLook } = this.#options
    try {
      const identity = await client.askIdentity()
      const { notary } = identity
      const faults = await check(identity)
      const isAccepted = faults.length === 0
      if (isAccepted) await introduce(identity, client)
      const isKnown = notary !== this.#identity?.notary && (await isKnownLog(notary))
      this.#identity = identity
      this.#faults = faults
      this.#error = null
      onFound({ kind: 'answered', notary, isAccepted, isKnown })
    } catch (thrown) {
      const error = asError(thrown)
      this.lose(error)
      onVainLook(error)
    }
  }
}
