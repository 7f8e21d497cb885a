import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import type { EncryptionKey } from '#attestation/encryption-key.ts'
import { chooseProvider } from '#enclave/protocol/choose-provider.ts'
import type { CompletionCall, EnclaveFaultCode, Identity } from '#enclave/protocol/enclave-api.ts'
import { chooseEndpoint } from './choose-enclave.ts'
import type { CompletionAnswer, EnclaveClient } from './enclave-client.ts'
import { EnclaveEndpoint, type EndpointOptions } from './enclave-endpoint.ts'
import { EnclaveError } from './enclave-errors.ts'
import { ENDPOINT_PHASES, type EndpointPhase, isUsable } from './endpoint-state.ts'
import { ENCLAVES_MAX } from './settings.ts'

type WantedCall = {
  readonly model: string
  readonly dialect: DialectName
  /** Notary of the only enclave that may make the call. Null: any enclave. */
  readonly notary: string | null
  /** If this function throws, the call ends. */
  readonly callFor: (identity: Pick<Identity, 'notary' | 'boot_configuration'>) => CompletionCall
}

type Wanted = Pick<WantedCall, 'model' | 'dialect' | 'notary'>

/** `attestation` is the enclave's current document. */
export type ServedNotary = Pick<
  Identity,
  'notary' | 'public_key' | 'attestation' | 'boot_configuration'
> & {
  readonly encryption_keys: readonly EncryptionKey[]
  /** `draining`: no new calls arrive, and the last completions are being added to the log. */
  readonly status: 'in_use' | 'draining'
}

/** For the operator. */
export type EndpointDescription = {
  /** Also the endpoint's name. */
  readonly socketPath: string
  readonly state: EndpointPhase
  /** Null before the enclave's first answer. */
  readonly notary: string | null
  /** Calls in flight. */
  readonly calls: number
  /** Number of the log's leaves in the database. Null while the log is not being committed. */
  readonly committed: number | null
  /**
   * Why the enclave is refused or unreachable, or why its log is not committed. Empty without a
   * fault.
   */
  readonly fault: string
}

export type EnclavePoolOptions = Omit<EndpointOptions, 'socketPath'> & {
  readonly socketPaths: readonly string[]
  /** False while the file of accepted releases cannot be used, and an earlier list is in use. */
  readonly areReleasesCurrent?: () => boolean
}

/**
 * An enclave with one of these faults did nothing for the call, so another enclave can make the
 * call.
 */
const NOT_TAKEN: ReadonlySet<EnclaveFaultCode> = new Set(['not_ready', 'too_busy', 'log_full'])

/** Distributes calls over all enclaves. The operator adds, drains and removes enclaves. */
export class EnclavePool {
  readonly #options: EnclavePoolOptions
  readonly #endpoints = new Map<string, EnclaveEndpoint>()
  readonly #listeners = new Set<() => void>()
  #chosen = 0

  constructor(options: EnclavePoolOptions) {
    this.#options = options
    for (const socketPath of options.socketPaths) this.#open(socketPath)
  }

  /** Returns the function that lists an enclave's faults. An enclave without faults is accepted. */
  get check(): EnclavePoolOptions['check'] {
    return this.#options.check
  }

  /**
   * If the first enclave did not get or accept the call, another enclave is tried. Throws
   * EnclaveError: `wasSent` is false if no enclave got the call. Also throws the error of
   * `callFor`, or the signal's reason.
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
          // The credential was for an old table of providers, so the identity is read again.
          await endpoint.watch.look()
          const { notary } = endpoint.state
          const isElsewhere = wanted.notary !== null && wanted.notary !== notary
          if (isUsable(endpoint.state) && !isElsewhere) continue
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

  /** `notary`: 0x, lower case. Null if no usable enclave of this notary has encryption keys. */
  findEncrypted(notary: string): EnclaveEndpoint | null {
    const takes = ({ state, identity }: EnclaveEndpoint) =>
      isUsable(state) && state.notary === notary && (identity?.encryption_keys.length ?? 0) > 0
    return this.#list().find(takes) ?? null
  }

  /**
   * Returns the notary that would get a call for this model in this dialect now. Throws
   * EnclaveError if no enclave is usable.
   */
  async chooseNotary(model: string, dialect: DialectName): Promise<string> {
    const wanted = { model, dialect, notary: null }
    return identityOf(this.#choose(wanted, new Set()) ?? (await this.#seek(wanted))).notary
  }

  /**
   * Returns the enclave of this notary, or null if that enclave was never in use. For `notary`
   * null, returns any enclave in use, or throws EnclaveError.
   */
  async find(notary: string | null): Promise<EnclaveClient | null> {
    const isOf = ({ state }: EnclaveEndpoint) => state.notary === notary && state.isFollowed
    if (notary !== null) return this.#list().find(isOf)?.client ?? null
    const [endpoint] = await this.#findUsable()
    if (endpoint === undefined) throw this.#noneInUse()
    return endpoint.client
  }

  /**
   * Returns the first document from the enclaves in use, standard base64. Throws EnclaveError if no
   * enclave answers.
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

  /** Lists only enclaves that are in use or draining, and that answered at the last look. */
  notaries(): readonly ServedNotary[] {
    return this.#list().flatMap(({ phase, identity }) => {
      if (identity === null || (phase !== 'usable' && phase !== 'draining')) return []
      const { notary, public_key, attestation, boot_configuration } = identity
      const status = phase === 'usable' ? 'in_use' : 'draining'
      // A draining enclave accepts no more calls.
      const keys = status === 'in_use' ? identity.encryption_keys : []
      const published = { notary, public_key, status, attestation, boot_configuration } as const
      return [{ ...published, encryption_keys: keys }]
    })
  }

  /** Identities from the last successful look at each enclave in use. */
  identities(): readonly Identity[] {
    return this.#list().flatMap(({ state, identity }) =>
      isUsable(state) && identity !== null ? [identity] : [],
    )
  }

  /** A state without endpoints has the count 0. */
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

  /** Adds an endpoint, or ends its drain. `limit`: there are ENCLAVES_MAX endpoints. */
  async add(socketPath: string): Promise<'done' | 'limit'> {
    const known = this.#endpoints.get(socketPath)
    if (known === undefined && this.#endpoints.size >= ENCLAVES_MAX) return 'limit'
    const endpoint = known ?? this.#open(socketPath)
    endpoint.order('serve')
    await endpoint.watch.look()
    return 'done'
  }

  /** Stops new calls at the endpoint. Does not wait until the enclave's log is committed. */
  drain(socketPath: string): 'done' | 'unknown' {
    const endpoint = this.#endpoints.get(socketPath)
    endpoint?.order('drain')
    return endpoint === undefined ? 'unknown' : 'done'
  }

  /** `in_use`: the endpoint must be drained first. */
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

  /** Waits for a usable enclave. False after `timeoutMs`, or if all are refused. */
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

  /** One line for each endpoint, for the person who started the gateway. */
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

  areReleasesCurrent(): boolean {
    return this.#options.areReleasesCurrent?.() ?? true
  }

  /** Call this after a change of the accepted releases. */
  recheck(): Promise<void> {
    return this.#forAll(({ watch }) => watch.look())
  }

  /**
   * Commits the sealed completions, and ends the commits. First calls `endEnclaves`, which ends
   * this process's enclaves: an enclave ends only after its completions are committed.
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

  #candidates({ notary }: Wanted, tried: ReadonlySet<EnclaveEndpoint>): readonly EnclaveEndpoint[] {
    return this.#list().filter(
      (endpoint) => !tried.has(endpoint) && (notary === null || endpoint.state.notary === notary),
    )
  }

  /** Null if no enclave is usable. Start the call at once: the next choice counts running calls. */
  #choose(wanted: Wanted, tried: ReadonlySet<EnclaveEndpoint>): EnclaveEndpoint | null {
    const endpoint = chooseEndpoint(this.#candidates(wanted, tried), (candidate) => {
      const { providers } = identityOf(candidate).boot_configuration
      return chooseProvider(providers, wanted.model, wanted.dialect) !== null
    })
    this.#chosen += 1
    if (endpoint !== null) endpoint.chosenAt = this.#chosen
    return endpoint
  }

  /** Checks the endpoints again. Throws EnclaveError if none is usable. */
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

  /** Returns the error of the first endpoint that has an error, with `wasSent` false. */
  #noneInUse(): EnclaveError {
    const known = this.#list()
      .map(({ error }) => error)
      .find((error) => error instanceof EnclaveError)
    if (known !== undefined)
      return new EnclaveError(known.code, known.message, known.fault, { wasSent: false })
    return new EnclaveError('unavailable', 'no enclave is in use', null, { wasSent: false })
  }
}

/** Checks endpoints now, because an enclave may have become reachable. */
async function seekUsable(endpoints: readonly EnclaveEndpoint[]): Promise<void> {
  const looks = endpoints
    .filter(({ state }) => state.order === 'serve')
    .map(async (endpoint) => {
      await endpoint.watch.look()
      if (!isUsable(endpoint.state)) throw new Error('expected the enclave to be usable')
    })
  // One usable endpoint is enough. The others may hang.
  await Promise.any(looks).catch(() => undefined)
}

function identityOf({ identity }: EnclaveEndpoint): Identity {
  if (identity === null)
    throw new TypeError('expected an endpoint that is usable to have been looked at')
  return identity
}
