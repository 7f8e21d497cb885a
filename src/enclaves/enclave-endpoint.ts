import type {
  AnchorProof,
  CompletionCall,
  EncryptedCall,
  Identity,
} from '#enclave/protocol/enclave-api.ts'
import type { PassedBody } from '../api/read-body.ts'
import type { Logger } from '../observability/logger.ts'
import { type CompletionAnswer, EnclaveClient } from './enclave-client.ts'
import { EnclaveError } from './enclave-errors.ts'
import { type EnclaveChecks, EnclaveWatch, type LookResult } from './enclave-watch.ts'
import type { EncryptedAnswer } from './encrypted-answer.ts'
import {
  type EndpointEvent,
  type EndpointPhase,
  type EndpointState,
  isUsable,
  NEW_ENDPOINT,
  nextEndpointState,
  phaseOf,
} from './endpoint-state.ts'
import { FollowedLog, type LogFollower } from './followed-log.ts'
import { RunningCalls } from './running-calls.ts'

export type EndpointOptions = EnclaveChecks & {
  /** Absolute path of the Unix socket. */
  readonly socketPath: string
  /** How many completion calls may run at the same time. */
  readonly callsMax: number
  /** Number of gateway processes that share the memory. Default: 1. */
  readonly processes?: number
  /** Starts to commit the log of the enclave at this endpoint. */
  readonly follow: (endpoint: EnclaveEndpoint) => LogFollower
  /** The enclave may still seal a call this long after the call's end. */
  readonly settleMs: number
  readonly identityTimeoutMs?: number
  readonly silenceMaxMs?: number
  /** Called after each change of the endpoint's state. */
  readonly onChange?: () => void
  readonly log: Logger
}

/**
 * A socket at which an enclave is expected. The enclave may be replaced, and gets calls only after
 * a check.
 */
export class EnclaveEndpoint {
  readonly socketPath: string
  readonly client: EnclaveClient
  readonly watch: EnclaveWatch
  readonly followedLog: FollowedLog
  /** Number of the endpoint's last call, counted over all endpoints. */
  chosenAt = 0
  readonly #calls: RunningCalls
  readonly #notaries = new Set<string>()
  readonly #onChange: () => void
  readonly #log: Logger
  #state = NEW_ENDPOINT
  #identity: Identity | null = null
  #faults: readonly string[] = []
  #error: Error | null = null

  constructor({ follow, settleMs, onChange = () => undefined, ...options }: EndpointOptions) {
    const state = () => this.#state
    this.socketPath = options.socketPath
    this.#onChange = onChange
    this.#log = options.log
    this.#calls = new RunningCalls({
      ...options,
      onBegin: () => this.#apply({ kind: 'call_began' }),
      onEnd: () => this.#apply({ kind: 'call_ended' }),
      onFault: (error) => this.#recordFault(error),
    })
    const client = new EnclaveClient({
      ...options,
      expectedNotary: () => (state().verdict === 'accepted' ? state().notary : null),
      isFollowed: async ({ notary }) => {
        const isFollowed = () => notary === state().notary && state().isFollowed
        if (!isFollowed()) await this.watch.look()
        return isFollowed()
      },
      onReply: () => this.#calls.markReply(),
    })
    this.client = client
    this.watch = new EnclaveWatch({
      ...options,
      client,
      state,
      onFound: (found) => this.#recordFound(found),
    })
    this.followedLog = new FollowedLog({
      client,
      state,
      follow: () => follow(this),
      settleMs,
      onSettled: (notary) => this.#apply({ kind: 'settled', notary }),
    })
  }

  get state(): EndpointState {
    return this.#state
  }

  get phase(): EndpointPhase {
    return phaseOf(this.#state)
  }

  /** The last identity that `watch` received. */
  get identity(): Identity | null {
    return this.#identity
  }

  /** The error of the last check, or of a call that failed after the last check. */
  get error(): Error | null {
    return this.#error
  }

  /** True if completions that are sealed now can be committed. */
  get isCommitting(): boolean {
    return this.followedLog.status()?.isCommitting ?? false
  }

  /** True if an enclave at this endpoint has this notary, or had it. */
  hasHeld(notary: string): boolean {
    return this.#notaries.has(notary)
  }

  /** Why the enclave is refused or unreachable. Empty without a fault. */
  describeFault(): string {
    if (this.#state.contact === 'lost') return this.#error?.message ?? ''
    return this.#state.verdict === 'refused' ? this.#faults.join('; ') : ''
  }

  order(order: EndpointState['order']): void {
    this.#apply({ kind: 'ordered', order })
    this.watch.wake()
  }

  /** Counts the call until it ends (RunningCalls.answerOf). Throws EnclaveError `timeout`. */
  complete(call: CompletionCall, body: Uint8Array, signal: AbortSignal): Promise<CompletionAnswer> {
    const running = this.#calls.begin(signal)
    return this.#calls.answerOf(running, this.client.complete(call, body, running.signal))
  }

  /** Counts the call as `complete` does. */
  encrypted(
    call: EncryptedCall,
    body: Pick<PassedBody, 'stream' | 'fault'>,
    signal: AbortSignal,
  ): Promise<EncryptedAnswer> {
    const running = this.#calls.begin(signal)
    return this.#calls.answerOf(running, this.client.encrypted(call, body, running.signal))
  }

  giveProof(proof: AnchorProof, signal: AbortSignal): Promise<boolean> {
    return this.client.giveProof(proof, signal)
  }

  /** Stops only the checks. The enclave's log is committed until `followedLog.stop` is called. */
  async stopWatching(): Promise<void> {
    this.followedLog.stopTending()
    await this.watch.stop()
  }

  #apply(event: EndpointEvent): void {
    const before = this.phase
    this.#state = nextEndpointState(this.#state, event)
    if (this.phase !== before) this.#report()
    this.followedLog.tend()
    this.#onChange()
  }

  #recordFound(found: LookResult): void {
    if (found.kind === 'vain') {
      this.#error = found.error
      this.#apply({ kind: 'lost' })
      this.#calls.endSilent(found.error)
      return
    }
    const { identity, faults, isKnown } = found
    const { notary } = identity
    this.#notaries.add(notary)
    this.#identity = identity
    this.#faults = faults
    this.#error = null
    this.#apply({ kind: 'answered', notary, isAccepted: faults.length === 0, isKnown })
  }

  /** After a call's error, the enclave may be gone or replaced. */
  #recordFault(error: unknown): void {
    if (!(error instanceof EnclaveError)) return
    if (!error.wasSent) {
      this.#error = error
      this.#apply({ kind: 'lost' })
    }
    this.watch.wake()
  }

  #report(): void {
    const { phase, socketPath } = this
    const facts = { enclave: socketPath, notary: this.#state.notary, state: phase }
    const fault = this.describeFault()
    if (isUsable(this.#state)) this.#log.info(facts, 'enclave in use')
    else if (phase === 'refused')
      this.#log.error({ ...facts, fault }, 'enclave refused: it gets no calls')
    else if (phase === 'unreachable')
      this.#log.warn({ ...facts, fault }, 'enclave out of reach, looking for it')
    else if (fault === '') this.#log.info(facts, `enclave ${phase}`)
    else this.#log.error({ ...facts, fault }, `enclave ${phase}: it gets no more calls`)
  }
}
