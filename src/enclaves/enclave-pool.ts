import type { EncryptionKey } from '../../attestation/encryption-key.ts'
import type { LogDomain } from '../../attestation/tree-head.ts'
import { chooseProvider } from '../../enclave/protocol/choose-provider.ts'
import type { CompletionCall, EnclaveFaultCode, Identity } from '../../enclave/protocol/messages.ts'
import type { EnclaveDescription, EnclaveOperations } from '../api/control-operations.ts'
import { parseSocketUrl } from '../runtime/fields.ts'
import { StartFailure } from '../runtime/starting.ts'
import { type RecordReleases, startReleases } from './accepted-releases.ts'
import { chooseEndpoint } from './choose-enclave.ts'
import { createEnclaveCheck } from './enclave-check.ts'
import type { CompletionAnswer, EnclaveClient } from './enclave-client.ts'
import { EnclaveEndpoint, type EndpointOptions } from './enclave-endpoint.ts'
import { EnclaveError } from './enclave-errors.ts'
import { ENDPOINT_PHASES, type EndpointPhase, isUsable } from './endpoint-state.ts'
import { ENCLAVES_MAX, type ReleasesConfig } from './settings.ts'

/** A completion call that any enclave may make, unless it is bound to one. */
type WantedCall = {
  readonly model: string
  /** The only enclave that may make it, by its notary; null: any. */
  readonly notary: string | null
  /** What is sent to the enclave of this identity. What it throws ends the call. */
  readonly callFor: (identity: Identity) => CompletionCall
}

type Wanted = Pick<WantedCall, 'model' | 'notary'>

/** A notary whose enclave answers, with its current attestation document. */
export type ServedNotary = Pick<
  Identity,
  'notary' | 'public_key' | 'attestation' | 'boot_configuration'
> & {
  /** Keys that calls may be encrypted to; none of an older enclave. */
  readonly encryption_keys: readonly EncryptionKey[]
  /** `draining`: it gets no new calls; its last completions are on their way into its log. */
  readonly status: 'in_use' | 'draining'
}

/** An endpoint as the operator sees it. */
export type EndpointDescription = Omit<EnclaveDescription, 'url'> & {
  /** Path of its socket, by which it is named. */
  readonly socketPath: string
  readonly state: EndpointPhase
}

export type EnclavePoolOptions = Omit<EndpointOptions, 'socketPath'> & {
  /** Paths that endpoints are opened for at once. */
  readonly socketPaths: readonly string[]
}

/** An enclave says these before it does anything for a call, or says that it may be made. */
const NOT_TAKEN: ReadonlySet<EnclaveFaultCode> = new Set(['not_ready', 'too_busy', 'log_full'])

/**
 * How long enclaves that are just (re)starting are waited for: one boots in about a second, in an
 * image in ten.
 */
const ENCLAVE_WAIT_MS = 20_000

/**
 * Opens the pool, and waits until an enclave is in use; others are taken into use when they come.
 * What ends it is given to `onStarted`, to be called in the opposite order. Rejects with
 * StartFailure when there is no enclave, or the gateway accepts none of them.
 */
export async function startEnclaves({
  domain,
  isProduction,
  isStaging = false,
  releases: releasesConfig,
  recordReleases,
  endEnclaves,
  onStarted,
  ...options
}: Omit<EnclavePoolOptions, 'check'> & {
  /** Why this gateway refuses an enclave; a test's own. */
  readonly check?: EnclavePoolOptions['check']
  /** What the enclaves sign for. */
  readonly domain: LogDomain
  readonly isProduction: boolean
  readonly isStaging?: boolean
  /** Null: enclaves are used with any measurements. */
  readonly releases: ReleasesConfig | null
  readonly recordReleases: RecordReleases
  /** Ends the enclaves that this process started; null when it started none. */
  readonly endEnclaves: (() => Promise<void>) | null
  readonly onStarted: (stop: () => Promise<void>) => void
}): Promise<EnclavePool> {
  const releases = await startReleases(releasesConfig, {
    isProduction,
    recordReleases,
    log: options.log,
  })
  onStarted(async () => releases.stop())
  const monotonic = () => performance.now()
  const expected = { domain, isProduction, isStaging, releases: () => releases.entries() }
  const check = createEnclaveCheck({ ...expected, now: Date.now, monotonic })
  const pool = new EnclavePool({ check, ...options })
  onStarted(() => pool.close())
  onStarted(() => pool.stopFollowing(endEnclaves))
  releases.onChange(() => void pool.recheck())
  if (!(await pool.awaitUsable(ENCLAVE_WAIT_MS))) throw new StartFailure(pool.describeFaults())
  return pool
}

/**
 * All enclaves of the gateway, as one: calls are spread over them, and the operator adds, drains
 * and removes some.
 */
export class EnclavePool {
  readonly #options: EnclavePoolOptions
  readonly #endpoints = new Map<string, EnclaveEndpoint>()
  /** Called after each change of an endpoint's state. */
  readonly #listeners = new Set<() => void>()
  #chosen = 0

  /** Opens the endpoints, and begins to watch them. */
  constructor(options: EnclavePoolOptions) {
    this.#options = options
    for (const socketPath of options.socketPaths) this.#open(socketPath)
  }

  /** What is wrong with an enclave for this gateway: nothing when it would be taken into use. */
  get check(): EnclavePoolOptions['check'] {
    return this.#options.check
  }

  /**
   * Has an enclave make the call; another one, when the first was sent nothing or took nothing.
   * Throws EnclaveError (with `wasSent` false when no enclave got it), what `callFor` throws, or
   * the signal's reason.
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
          // The table of providers that the credential was chosen by was an older one.
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
   * The enclave of this notary (0x, lower case), while it takes encrypted calls; an older enclave
   * has no keys for them.
   */
  findEncrypted(notary: string): EnclaveEndpoint | null {
    const takes = ({ state, identity }: EnclaveEndpoint) =>
      isUsable(state) && state.notary === notary && (identity?.encryption_keys ?? []).length > 0
    return this.#list().find(takes) ?? null
  }

  /**
   * Notary of the enclave that would make a call for this model now. Throws EnclaveError when no
   * enclave would.
   */
  async chooseNotary(model: string): Promise<string> {
    const wanted = { model, notary: null }
    return identityOf(this.#choose(wanted, new Set()) ?? (await this.#seek(wanted))).notary
  }

  /**
   * The enclave of this notary, whose log is, or was, followed here; with null, any enclave in use.
   * Gives null when no enclave has this notary; throws EnclaveError when none is in use.
   */
  async find(notary: string | null): Promise<EnclaveClient | null> {
    const isOf = ({ state }: EnclaveEndpoint) => state.notary === notary && state.isFollowed
    if (notary !== null) return this.#list().find(isOf)?.client ?? null
    const [endpoint] = await this.#findUsable()
    if (endpoint === undefined) throw this.#noneInUse()
    return endpoint.client
  }

  /**
   * A current attestation document, standard base64, of the first enclave in use that answers: each
   * is asked now. Throws EnclaveError when none answers.
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
   * Notaries whose enclaves answered at the last look: those in use, and those that are being
   * drained.
   */
  notaries(): readonly ServedNotary[] {
    return this.#list().flatMap(({ phase, identity }) => {
      if (identity === null || (phase !== 'usable' && phase !== 'draining')) return []
      const { notary, public_key, attestation, boot_configuration } = identity
      const status = phase === 'usable' ? 'in_use' : 'draining'
      // A drained enclave takes no more calls.
      const keys = status === 'in_use' ? (identity.encryption_keys ?? []) : []
      const published = { notary, public_key, status, attestation, boot_configuration } as const
      return [{ ...published, encryption_keys: keys }]
    })
  }

  /** What the enclaves in use said last of themselves. */
  identities(): readonly Identity[] {
    return this.#list().flatMap(({ state, identity }) =>
      isUsable(state) && identity !== null ? [identity] : [],
    )
  }

  /** How many endpoints are in each state, with those that none is in. */
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
   * Has an endpoint serve: a new one, or one that was drained. Its enclave is checked first.
   * `limit`: there are ENCLAVES_MAX.
   */
  async add(socketPath: string): Promise<'done' | 'limit'> {
    const known = this.#endpoints.get(socketPath)
    if (known === undefined && this.#endpoints.size >= ENCLAVES_MAX) return 'limit'
    const endpoint = known ?? this.#open(socketPath)
    endpoint.order('serve')
    await endpoint.watch.look()
    return 'done'
  }

  /** Gives an endpoint no more calls, and has its log settled. Does not wait for that. */
  drain(socketPath: string): 'done' | 'unknown' {
    const endpoint = this.#endpoints.get(socketPath)
    endpoint?.order('drain')
    return endpoint === undefined ? 'unknown' : 'done'
  }

  /** Forgets an endpoint. `in_use`: it has to be drained first. */
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
   * Waits for the first enclave that is usable; false when none is within `timeoutMs`, or all are
   * refused.
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

  /** Why none is usable, a line for each endpoint, for who started this. */
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

  /** Checks every enclave again: what is accepted may have changed. */
  recheck(): Promise<void> {
    return this.#forAll(({ watch }) => watch.look())
  }

  /**
   * Ends all watching, commits what is sealed, and follows no more. `endEnclaves` ends the enclaves
   * of this process, each of which waits until all it sealed is committed: so it is called between
   * the two.
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

  /** Those that may make the call and were not tried yet. */
  #candidates({ notary }: Wanted, tried: ReadonlySet<EnclaveEndpoint>): readonly EnclaveEndpoint[] {
    return this.#list().filter(
      (endpoint) => !tried.has(endpoint) && (notary === null || endpoint.state.notary === notary),
    )
  }

  /**
   * Gives the endpoint for a call, null when none is usable. The call is to follow at once: what is
   * chosen next has to see it counted.
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

  /** The same, when none is usable: throws EnclaveError when that stays so. */
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
   * Why there is no enclave for a call: as the first of them says, when there are any. Nothing was
   * sent.
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
 * Looks at endpoints of which none is usable: an enclave may be back, and callers find that out
 * first.
 */
async function seekUsable(endpoints: readonly EnclaveEndpoint[]): Promise<void> {
  const looks = endpoints
    .filter(({ state }) => state.order === 'serve')
    .map(async (endpoint) => {
      await endpoint.watch.look()
      if (!isUsable(endpoint.state)) throw new Error('expected the enclave to be usable')
    })
  // The first that is usable will do; the others may hang.
  await Promise.any(looks).catch(() => undefined)
}

function identityOf({ identity }: EnclaveEndpoint): Identity {
  if (identity === null)
    throw new TypeError('expected an endpoint that is usable to have been looked at')
  return identity
}

/** Gives the operator's operations over the enclaves of this process. */
export function createEnclaveOperations(
  pool: Pick<EnclavePool, 'list' | 'add' | 'drain' | 'remove'>,
): EnclaveOperations {
  const at = async <Outcome>(
    url: string,
    run: (socketPath: string) => Outcome | Promise<Outcome>,
  ) => {
    const socketPath = parseSocketUrl(url)
    return socketPath === null ? 'invalid' : run(socketPath)
  }
  return {
    list: async () =>
      pool.list().map(({ socketPath, ...rest }) => ({ url: `unix:${socketPath}`, ...rest })),
    add: (url) => at(url, (socketPath) => pool.add(socketPath)),
    drain: (url) => at(url, (socketPath) => pool.drain(socketPath)),
    remove: (url) => at(url, (socketPath) => pool.remove(socketPath)),
  }
}
