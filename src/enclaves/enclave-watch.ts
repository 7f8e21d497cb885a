import type { Identity } from '../../enclave/protocol/messages.ts'
import { asError } from '../api/errors.ts'
import { backOffMs } from '../runtime/back-off.ts'
import { createLoop } from '../runtime/loop.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import type { CheckedIdentity } from './enclave-check.ts'
import type { EnclaveClient } from './enclave-client.ts'
import type { EndpointState } from './endpoint-state.ts'

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
   * Gives why this gateway refuses an enclave now, a sentence for each reason; empty: it is
   * accepted.
   */
  readonly check: (identity: CheckedIdentity) => Promise<readonly string[]>
  /** Whether the notary's log is in the database: then an enclave was accepted with it once. */
  readonly isKnownLog: (notary: string) => Promise<boolean>
  /**
   * Shows an accepted enclave the logs that there are, before its first call. Does nothing when it
   * was shown them.
   */
  readonly register: (
    identity: Identity,
    enclave: Pick<EnclaveClient, 'stateBoot'>,
  ) => Promise<void>
}

/**
 * What a look found: who answers there, and why this gateway refuses it, if it does; or no answer.
 */
export type LookResult =
  | {
      readonly kind: 'answered'
      readonly identity: Identity
      readonly faults: readonly string[]
      /** Whether its log is in the database; false for the enclave that answered before. */
      readonly isKnown: boolean
    }
  | { readonly kind: 'vain'; readonly error: Error }

export type EnclaveWatchOptions = EnclaveChecks & {
  readonly client: Pick<EnclaveClient, 'askIdentity' | 'stateBoot'>
  /** Of the endpoint. */
  readonly state: () => EndpointState
  /** Called after each look. */
  readonly onFound: (found: LookResult) => void
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

  constructor(options: EnclaveWatchOptions) {
    this.#options = options
  }

  start(): void {
    this.#loop.start()
  }

  /** Ends the pause until the next look. */
  wake(): void {
    this.#loop.wake()
  }

  /** Ends the watch. Resolves when no look is under way. */
  async stop(): Promise<void> {
    await this.#loop.stop()
    await this.#looking
  }

  async #round(): Promise<number> {
    await this.look()
    this.#failures = this.#options.state().contact === 'lost' ? this.#failures + 1 : 0
    return this.#failures === 0
      ? WATCH_INTERVAL_MS
      : backOffMs(this.#failures, BACKOFF, { jitter: 'none' })
  }

  async #look(): Promise<void> {
    const { client, state, check, register, isKnownLog, onFound } = this.#options
    try {
      const identity = await client.askIdentity()
      const { notary } = identity
      const faults = await check(identity)
      if (faults.length === 0) await register(identity, client)
      const isKnown = notary !== state().notary && (await isKnownLog(notary))
      onFound({ kind: 'answered', identity, faults, isKnown })
    } catch (error) {
      onFound({ kind: 'vain', error: asError(error) })
    }
  }
}
