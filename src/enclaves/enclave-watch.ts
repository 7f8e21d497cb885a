import type { Identity } from '#enclave/protocol/enclave-api.ts'
import { asError } from '../api/errors.ts'
import { backOffMs } from '../runtime/back-off.ts'
import { createLoop } from '../runtime/loop.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import type { CheckedIdentity } from './enclave-check.ts'
import type { EnclaveClient } from './enclave-client.ts'
import type { EndpointState } from './endpoint-state.ts'

/** A stop, a restart and the end of a release are noticed within this time. */
const WATCH_INTERVAL_MS = 1_000
/** Pauses between two looks at an unreachable enclave. */
const BACKOFF = { minMs: 100, maxMs: 5_000 }

/** These checks decide whether an enclave is used. */
export type EnclaveChecks = {
  /** Why this gateway refuses the enclave now, one sentence for each reason. Empty: accepted. */
  readonly check: (identity: CheckedIdentity) => Promise<readonly string[]>
  /** True if the notary's log is in the database, because the enclave was accepted earlier. */
  readonly isKnownLog: (notary: string) => Promise<boolean>
  /** Sends an accepted enclave the heads of other logs once, before its first call. */
  readonly register: (
    identity: Identity,
    enclave: Pick<EnclaveClient, 'stateBoot'>,
  ) => Promise<void>
}

/** `vain`: no enclave answers. */
export type LookResult =
  | {
      readonly kind: 'answered'
      readonly identity: Identity
      readonly faults: readonly string[]
      /** True if this is the enclave's first answer here, and its log is in the database. */
      readonly isKnown: boolean
    }
  | { readonly kind: 'vain'; readonly error: Error }

type EnclaveWatchOptions = EnclaveChecks & {
  readonly client: Pick<EnclaveClient, 'askIdentity' | 'stateBoot'>
  readonly state: () => EndpointState
  readonly onFound: (found: LookResult) => void
}

/** Checks an enclave every second, because it can be replaced and its release can end. */
export class EnclaveWatch {
  /** Concurrent calls share one look. Never rejects. */
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

  wake(): void {
    this.#loop.wake()
  }

  /** Resolves when no look is running. */
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
