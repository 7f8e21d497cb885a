import type { EncryptionKey } from '../../attestation/encryption-key.ts'
import { chooseProvider } from '../../enclave/protocol/choose-provider.ts'
import type { CompletionCall, EnclaveFaultCode, Identity } from '../../enclave/protocol/messages.ts'
import { chooseEndpoint } from './choose-enclave.ts'
import type { CompletionAnswer, EnclaveClient } from './enclave-client.ts'
import { EnclaveEndpoint, type EndpointOptions } from './enclave-endpoint.ts'
import { EnclaveError } from './enclave-errors.ts'
import { ENDPOINT_PHASES, type EndpointPhase, isUsable } from './endpoint-state.ts'
import { ENCLAVES_MAX } from './settings.ts'

/**
 * A completion call that any enclave may make. If `notary` is set, only this notary's enclave may
 * make it.
 */
type WantedCall = {
  readonly model: string
  /**
   * Notary of the only enclave that may make the call. If it is null, any enclave may make the
   * call.
   */
  readonly notary: string | null
  /**
   * Returns the call to send to the enclave with this identity. If it throws an error, the error
   * ends the call.
   */
  readonly callFor: (identity: Identity) => CompletionCall
}

type Wanted = Pick<WantedCall, 'model' | 'notary'>

/** A notary whose enclave answers, with its current attestation document. */
export type ServedNotary = Pick<
  Identity,
  'notary' | 'public_key' | 'attestation' | 'boot_configuration'
> & {
  /** Keys for encrypting calls. Empty for an older enclave. */
  readonly encryption_keys: readonly EncryptionKey[]
  /**
   * `draining` means that the enclave gets no new calls, and its last completions are being added
   * to its log.
   */
  readonly status: 'in_use' | 'draining'
}

/** The description of an endpoint for the operator. */
export type EndpointDescription = {
  /** Path of the endpoint's socket. It is also the endpoint's name. */
  readonly socketPath: string
  readonly state: EndpointPhase
  /** Null until the enclave has answered for the first time. */
  readonly notary: string | null
  /** Calls in flight. */
  readonly calls: number
  /** How many leaves of the enclave's log are in the database. Null if the log is not followed. */
  readonly committed: number | null
  /**
   * Why the enclave is refused or unreachable, or why its log cannot be committed. Empty if there
   * is no fault.
   */
  readonly fault: string
}

export type EnclavePoolOptions = Omit<EndpointOptions, 'socketPath'> & {
  /** Paths for which endpoints are opened at the start. */
  readonly socketPaths: readonly string[]
}

/**
 * Codes with which an enclave answers before it does anything for a call. After such a code,
 * another enclave may make the call.
 */
const NOT_TAKEN: ReadonlySet<EnclaveFaultCode> = new Set(['not_ready', 'too_busy', 'log_full'])

/**
 * Presents all enclaves of the gateway as one. Calls are distributed over the enclaves. The
 * operator adds, drains and removes enclaves.
 */
export class EnclavePool {
  readonly #options: EnclavePoolOptions
  readonly #endpoints = new Map<string, EnclaveEndpoint>()
  /** Called after each change of an endpoint's state. */
  readonly #listeners = new Set<() => void>()
  #chosen = 0

  /** Opens the endpoints, and starts to watch them. */
  constructor(options: EnclavePoolOptions) {
    this.#options = options
    for (const socketPath of options.socketPaths) this.#open(socketPath)
  }

  /**
   * Returns the check that finds the faults of an enclave for this gateway. An enclave without
   * faults would be used.
   */
  get check(): EnclavePoolOptions['check'] {
    return this.#options.check
  }

  /**
   * Sends the call to an enclave. If the call was not sent to the first enclave, or that enclave
   * did not accept it, tries another enclave. Throws EnclaveError. Its `wasSent` is false if no
   * enclave got the call. Also throws the error of `callFor`, or the signal's reason.
   */
  async complete(
    wanted: WantedCall,
    body: Uint8Array,
    signal: AbortSignal,
  ): Promise<CompletionAnswer> {
    const tried = new Set<EnclaveEndpoint>()
    const chooseOther = () => (wanted.notary === null ? this.#choose(wanted, tried) : null)
    let endpoint = this.#choose(wanted, tried) ?? (await this.#seek(wanted))
    for (;;) {
      const isRepeated = tried.has(endpoint)
      tried.add(endpoint)
      try {
        const answer = await endpoint.complete(wanted.callFor(identityOf(endpoint)), body, signal)
        if (answer.kind !== 'fault') return answer
        const { code, may_be_made: mayBeMade } = answer.fault
        if (code === 'provider_mismatch' && !isRepeated) {
          // The credential was chosen with an old table of providers, so the identity is read
          // again.
          await endpoint.watch.look()
          if (isUsable(endpoint.state)) continue
        }
        const other = NOT_TAKEN.has(code) && mayBeMade !== true ? chooseOther() : null
        if (other === null) return answer
        endpoint = other
      } catch (error) {
        const wasSent = !(error instanceof EnclaveError) || error.wasSent
        const other = wasSent ? null : chooseOther()
        if (other === null) throw error
        endpoint = other
      }
    }
  }

  /**
   * Returns the endpoint of this notary (0x, lower case) while the notary's enclave accepts
   * encrypted calls. An older enclave has no keys for encrypted calls.
   */
  findEncrypted(notary: string): EnclaveEndpoint | null {
    const takes = ({ state, identity }: EnclaveEndpoint) =>
      isUsable(state) && state.notary === notary && (identity?.encryption_keys ?? []).length > 0
    return this.#list().find(takes) ?? null
  }

  /**
   * Returns the notary of the enclave that would make a call for this model now. Throws
   * EnclaveError if no enclave would make it.
   */
  async chooseNotary(model: string): Promise<string> {
    const wanted = { model, notary: null }
    return identityOf(this.#choose(wanted, new Set()) ?? (await this.#seek(wanted))).notary
  }

  /**
   * Returns the enclave of this notary, if this gateway follows or followed the enclave's log. If
   * `notary` is null, returns any enclave in use. Returns null if no enclave has this notary.
   * Throws EnclaveError if no enclave is in use.
   */
  async find(notary: string | null): Promise<EnclaveClient | null> {
    const isOf = ({ state }: EnclaveEndpoint) => state.notary === notary && state.isFollowed
    if (notary !== null) return this.#list().find(isOf)?.client ?? null
    const [endpoint] = await this.#findUsable()
    if (endpoint === undefined) throw this.#noneInUse()
    return endpoint.client
  }

  /**
   * Returns a current attestation document, standard base64. All enclaves in use are asked now, and
   * the first answer is returned. Throws EnclaveError if no enclave answers.
   */
  async document(): Promise<string> {
    const documents = (await this.#findUsable()).map(async ({ client }) => {
      client.forgetIdentity()
      return (await client.identity()).attestation
    })
    try {
      return await Promise.any(documents)
    } catch {
      throw new EnclaveError('unavailable', 'no enclave in use says who it is')
    }
  }

  /**
   * Returns the notaries whose enclaves answered at the last look. These enclaves are in use or
   * draining.
   */
  notaries(): readonly ServedNotary[] {
    return this.#list().flatMap(({ phase, identity }) => {
      if (identity === null || (phase !== 'usable' && phase !== 'draining')) return []
      const { notary, public_key, attestation, boot_configuration } = identity
      const status = phase === 'usable' ? 'in_use' : 'draining'
      // A drained enclave accepts no more calls.
      const keys = status === 'in_use' ? (identity.encryption_keys ?? []) : []
      const published = { notary, public_key, status, attestation, boot_configuration } as const
      return [{ ...published, encryption_keys: keys }]
    })
  }

  /** Gives the last known identities of the enclaves in use. */
  identities(): readonly Identity[] {
    return this.#list().flatMap(({ state, identity }) =>
      isUsable(state) && identity !== null ? [identity] : [],
    )
  }

  /** Counts the endpoints in each state. A state without endpoints has the count 0. */
  countStates(): ReadonlyMap<EndpointPhase, number> {
    const phases = this.#list().map(({ phase }) => phase)
    return new Map(
      ENDPOINT_PHASES.map((phase) => [phase, phases.filter((other) => other === phase).length]),
    )
  }

  list(): readonly EndpointDescription[] {
    return this.#list().map((endpoint) => {
      const { socketPath, phase, state, identity } = endpoint
      const followed = endpoint.followedLog.status()
      const settled = state.isSettled ? (identity?.log.size ?? null) : null
      return {
        socketPath,
        state: phase,
        notary: state.notary,
        calls: state.calls,
        committed: followed?.size ?? settled,
        fault: endpoint.describeFault() || (followed?.fault ?? ''),
      }
    })
  }

  /**
   * Puts an endpoint into use. It may be new, or it may have been drained. The endpoint's enclave
   * is checked first. Returns `limit` if there are already ENCLAVES_MAX endpoints.
   */
  async add(socketPath: string): Promise<'done' | 'limit'> {
    const known = this.#endpoints.get(socketPath)
    if (known === undefined && this.#endpoints.size >= ENCLAVES_MAX) return 'limit'
    const endpoint = known ?? this.#open(socketPath)
    endpoint.order('serve')
    await endpoint.watch.look()
    return 'done'
  }

  /**
   * Sends no more calls to an endpoint, and starts to settle its log. Does not wait until the log
   * is settled.
   */
  drain(socketPath: string): 'done' | 'unknown' {
    const endpoint = this.#endpoints.get(socketPath)
    endpoint?.order('drain')
    return endpoint === undefined ? 'unknown' : 'done'
  }

  /** Removes an endpoint. Returns `in_use` if the endpoint must be drained first. */
  async remove(socketPath: string): Promise<'done' | 'unknown' | 'in_use'> {
    const endpoint = this.#endpoints.get(socketPath)
    if (endpoint === undefined) return 'unknown'
    const { phase, state } = endpoint
    if (phase === 'usable' || phase === 'draining' || state.calls > 0) return 'in_use'
    this.#endpoints.delete(socketPath)
    await endpoint.stopWatching()
    await endpoint.followedLog.stop()
    await endpoint.client.close()
    return 'done'
  }

  /**
   * Waits for the first usable enclave. Returns false if `timeoutMs` has passed, or if all enclaves
   * are refused.
   */
  async awaitUsable(timeoutMs: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>()
    const look = () => {
      if (this.#list().some(({ state }) => isUsable(state))) resolve(true)
      else if (this.#list().every(({ phase }) => phase === 'refused')) resolve(false)
    }
    this.#listeners.add(look)
    const timer = setTimeout(() => resolve(false), timeoutMs)
    look()
    return promise.finally(() => {
      clearTimeout(timer)
      this.#listeners.delete(look)
    })
  }

  /**
   * Returns the reasons why no enclave is usable, one line for each endpoint. The text is for the
   * person who started the gateway.
   */
  describeFaults(): string {
    const name = (socketPath: string) => (this.#endpoints.size === 1 ? '' : `${socketPath}: `)
    const faults = this.#list().map((endpoint) => {
      const { socketPath, phase } = endpoint
      const fault = endpoint.describeFault()
      if (phase === 'refused') return `${name(socketPath)}${fault}`
      return `enclave: ENCLAVE_URL: ${name(socketPath)}${fault || 'no answer'}`
    })
    return faults.join('\n')
  }

  /** Checks every enclave again, because the accepted releases may have changed. */
  recheck(): Promise<void> {
    return this.#forAll(({ watch }) => watch.look())
  }

  /**
   * Ends all watching, commits the sealed completions, and stops following logs. `endEnclaves` ends
   * the enclaves that this process started. Each of these enclaves waits until all its completions
   * are committed. So `endEnclaves` is called before following stops.
   */
  async stopFollowing(endEnclaves: (() => Promise<void>) | null = null): Promise<void> {
    await this.#forAll((endpoint) => endpoint.stopWatching())
    try {
      if (endEnclaves !== null) for (const { client } of this.#list()) client.expectEnd()
      await endEnclaves?.()
    } finally {
      await this.#forAll(({ followedLog }) => followedLog.stop())
    }
  }

  /** Ends all connections. */
  close(): Promise<void> {
    return this.#forAll(({ client }) => client.close())
  }

  #list(): readonly EnclaveEndpoint[] {
    return [...this.#endpoints.values()]
  }

  async #forAll(run: (endpoint: EnclaveEndpoint) => Promise<void>): Promise<void> {
    await Promise.all(this.#list().map(run))
  }

  #open(socketPath: string): EnclaveEndpoint {
    const onChange = () => {
      for (const listener of this.#listeners) listener()
    }
    const endpoint = new EnclaveEndpoint({ ...this.#options, socketPath, onChange })
    this.#endpoints.set(socketPath, endpoint)
    endpoint.watch.start()
    return endpoint
  }

  /** Returns the endpoints that may make the call and that were not tried yet. */
  #candidates({ notary }: Wanted, tried: ReadonlySet<EnclaveEndpoint>): readonly EnclaveEndpoint[] {
    return this.#list().filter(
      (endpoint) => !tried.has(endpoint) && (notary === null || endpoint.state.notary === notary),
    )
  }

  /**
   * Returns the endpoint for a call. Returns null if no endpoint is usable. The call must start at
   * once, so that the next choice counts it.
   */
  #choose(wanted: Wanted, tried: ReadonlySet<EnclaveEndpoint>): EnclaveEndpoint | null {
    const endpoint = chooseEndpoint(this.#candidates(wanted, tried), (candidate) => {
      const { providers } = identityOf(candidate).boot_configuration
      return chooseProvider(providers, wanted.model) !== null
    })
    this.#chosen += 1
    if (endpoint !== null) endpoint.chosenAt = this.#chosen
    return endpoint
  }

  /**
   * Checks the endpoints again if none is usable. Throws EnclaveError if no endpoint becomes
   * usable.
   */
  async #seek(wanted: Wanted): Promise<EnclaveEndpoint> {
    await seekUsable(this.#candidates(wanted, new Set()))
    const endpoint = this.#choose(wanted, new Set())
    if (endpoint === null) throw this.#noneInUse()
    return endpoint
  }

  async #findUsable(): Promise<readonly EnclaveEndpoint[]> {
    const listUsable = () => this.#list().filter(({ state }) => isUsable(state))
    if (listUsable().length === 0) await seekUsable(this.#list())
    return listUsable()
  }

  /**
   * Returns the error for the case that no enclave can accept a call. It is the error of the first
   * endpoint that has an error. Nothing was sent.
   */
  #noneInUse(): EnclaveError {
    const known = this.#list()
      .map(({ error }) => error)
      .find((error) => error instanceof EnclaveError)
    if (known !== undefined)
      return new EnclaveError(known.code, known.message, known.fault, { wasSent: false })
    return new EnclaveError('unavailable', 'no enclave is in use', null, { wasSent: false })
  }
}

/**
 * Checks the endpoints again if none is usable. An enclave may be reachable again, and a caller may
 * notice that before the next regular look.
 */
async function seekUsable(endpoints: readonly EnclaveEndpoint[]): Promise<void> {
  const looks = endpoints
    .filter(({ state }) => state.order === 'serve')
    .map(async (endpoint) => {
      await endpoint.watch.look()
      if (!isUsable(endpoint.state)) throw new Error('expected the enclave to be usable')
    })
  // The first usable endpoint is enough. The others may hang, so they are not awaited.
  await Promise.any(looks).catch(() => undefined)
}

function identityOf({ identity }: EnclaveEndpoint): Identity {
  if (identity === null)
    throw new TypeError('expected an endpoint that is usable to have been looked at')
  return identity
}
