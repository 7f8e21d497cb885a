import { PolicyError } from '#attestation/nitro/policy.ts'
import { hasOwnMembersAlone, ownMembers } from '#attestation/own-members.ts'
import {
  type EnclavesPolicy,
  type Policy,
  readProviderPolicies,
} from '#attestation/report/policy-file.ts'
import {
  type AnchoredEvidence,
  type AnchoredOptions,
  awaitAnchor,
  type KeptProof,
} from './anchored.ts'
import type { AskedGateway } from './ask-gateway.ts'
import type { AttestedNotary } from './attest-notary.ts'
import { checkRpc } from './chain-facts.ts'
import { createCheckedFetch } from './checked-fetch.ts'
import { AffidavitError, messageOf } from './errors.ts'
import { type Fetch, isSafeForKey } from './gateway.ts'
import { createNotaries, type RefusedNotary } from './notaries.ts'
import { patientFetch } from './patient-fetch.ts'
import { createProofs, type Proof, type Proofs } from './proof.ts'
import type { AttestedProvider, Providers, RefusedProvider } from './providers.ts'
import { createReleaseUpdates } from './release-updates.ts'
import { createRpc } from './rpc.ts'
import {
  type CallSession,
  type CallSessionOptions,
  createSession,
  type SessionTurns,
} from './session.ts'

/** The options of connect. */
export type ConnectOptions = {
  /**
   * URL of the gateway: `https://…`, or `http://…` if the gateway runs on the same computer as this
   * client.
   */
  readonly url: string
  /** API key for requests for evidence. Calls carry the key that the OpenAI client sets. */
  readonly apiKey?: string
  /**
   * Whom this client trusts: the content of `policy.json`, with `enclaves`. If it has `providers`,
   * calls are sent only to these.
   */
  readonly policy: Policy
  /**
   * URL of a JSON-RPC endpoint of the chain, for `policy.providers`: the time of the nonce's block
   * shows the age of their evidence. You must trust its operator. Default: their age is not
   * checked.
   */
  readonly rpc?: string
  /** Accepts enclaves in debug mode: the host can read their memory. Default false. */
  readonly allowDebug?: boolean
  /**
   * Encrypts calls to an accepted enclave, so that the gateway cannot read them. Default true. The
   * gateway then has neither request nor answer, so the caller must keep the proofs.
   */
  readonly encrypt?: boolean
  /**
   * Passes on a stream only after the whole stream was checked. Default false: chunks are passed on
   * as they arrive.
   */
  readonly hold?: boolean
  /** Maximum number of proofs that are kept in `proofs`. Default 100. */
  readonly proofsMax?: number
  /** Size limit of an answer, bytes. Default 64 MiB. */
  readonly answerBytesMax?: number
  /**
   * Time limit for requests to the gateway, except completions, milliseconds. Default 30,000,
   * maximum 2^31 - 1.
   */
  readonly timeoutMs?: number
  /**
   * Receives each proof before the end of the answer is passed on. If the function returns a
   * promise, the client waits. If it throws, the client refuses the answer.
   */
  readonly onProof?: (proof: Proof) => void | Promise<void>
  /** Replaces the global `fetch`, for example for proxies and tests. */
  readonly fetch?: Fetch
  /** Aborts `connect`. */
  readonly signal?: AbortSignal
}

/** A gateway whose answers this client checks. */
export type Affidavit = {
  /** The `baseURL` for an OpenAI client. */
  readonly baseURL: string
  /** The `baseURL` for an Anthropic client. */
  readonly anthropicBaseURL: string
  /** The `fetch` for a client of OpenAI or Anthropic. */
  readonly fetch: Fetch
  /** Starts a session: its `fetch` ties the calls of one run of an agent together. */
  startSession(options?: CallSessionOptions): CallSession
  /** The notaries of the accepted enclaves, with verified facts about each. */
  readonly notaries: readonly AttestedNotary[]
  /** Notaries that the gateway named and that were refused, with the reason. */
  readonly refused: readonly RefusedNotary[]
  /** Providers whose evidence passed. Empty without `policy.providers`. */
  readonly providers: readonly AttestedProvider[]
  /** Refused providers, each with the reason. */
  readonly refusedProviders: readonly RefusedProvider[]
  readonly proofs: Proofs
  /**
   * Adds a listener that works like the option `onProof`. Returns a function that removes the
   * listener.
   */
  onProof(listener: (proof: Proof) => void | Promise<void>): () => void
  /** Waits until the chain has a call's anchor. Returns the call's checked evidence. */
  anchored(proof: KeptProof, options?: AnchoredOptions | string): Promise<AnchoredEvidence>
  /**
   * Replaces `policy.enclaves.releases` with newer releases, signed by the same keys. Each new
   * list replaces the old list at the same position. Lists at new positions are added. The new
   * lists apply at once: an enclave whose release they do not accept receives no calls, and its
   * answers are refused. Resolves when all enclaves were attested again. Throws AffidavitError
   * `older_releases` or `invalid_options` before any change. After the change, throws the errors
   * of `refresh`: `no_notary` when no enclave is left.
   */
  updateReleases(releases: NonNullable<EnclavesPolicy['releases']>): Promise<void>
  /**
   * Attests all enclaves again now, and judges the newest evidence of the providers. The client
   * also does this by itself when necessary.
   */
  refresh(): Promise<void>
}

const PROOFS_MAX_DEFAULT = 100
const ANSWER_BYTES_MAX_DEFAULT = 64 * 1024 * 1024
const TIMEOUT_MS_DEFAULT = 30_000
/** A longer timer would fire at once. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1

/**
 * Connects to a gateway. It asks the gateway for its notaries, and each notary's enclave for an
 * attestation document with a nonce chosen here. It checks the documents against the policy.
 * Resolves when at least one enclave passes; answers of other enclaves are refused. New enclaves
 * are checked when they answer. All enclaves are checked again before their documents expire.
 *
 * Does NOT hide from the gateway who calls, when, which model, and how long request and answer are.
 * With `encrypt: false`, the gateway reads request and answer. Throws AffidavitError
 * `invalid_options`, `no_notary`, `no_encryption_key`, `no_attested_provider`, `unreachable`,
 * `gateway_error`, `invalid_reply`, `redirected`.
 *
 * @example
 * const affidavit = await connect({ url, apiKey, policy })
 * const openai = new OpenAI({ apiKey, baseURL: affidavit.baseURL, fetch: affidavit.fetch })
 * const messages = [{ role: 'user', content: 'Hello' }]
 * const answer = await openai.chat.completions.create({ model: 'demo/echo', messages })
 * console.log(affidavit.proofs.get(answer.hash).hash === answer.hash) // true
 */
export async function connect(given: ConnectOptions): Promise<Affidavit> {
  checkMembers(given)
  const options = ownMembers(given)
  const { policy, allowDebug, encrypt = true, hold = false, signal } = options
  const url = readUrl(options.url)
  const releases = createReleaseUpdates(policy, {
    ...(allowDebug === undefined ? {} : { allowDebug }),
  })
  const fetch = options.fetch ?? patientFetch()
  const gateway: AskedGateway = {
    url,
    apiKey: options.apiKey ?? null,
    fetch,
    timeoutMs: timeoutOf(options.timeoutMs),
  }
  const now = () => Date.now()
  const notaries = createNotaries(gateway, { policy: releases.policy, now })
  const providers = await openProviders(gateway, { ...options, now })
  const { proofs, add, bind } = createProofs(
    countOf(options.proofsMax, 'proofsMax', PROOFS_MAX_DEFAULT),
  )
  const listeners = new Set(options.onProof === undefined ? [] : [options.onProof])
  const baseURL = `${url}/v1/verified`
  const bytesMax = countOf(options.answerBytesMax, 'answerBytesMax', ANSWER_BYTES_MAX_DEFAULT)
  const openFetch = (session: SessionTurns | null, keepToo: CallSessionOptions['onProof']): Fetch =>
    createCheckedFetch({
      baseURL,
      fetch,
      notaries,
      providers,
      encrypt,
      hold,
      bytesMax,
      now,
      keep: async (proof) => {
        for (const listener of listeners) await listener(proof)
        await keepToo?.(proof)
        add(proof)
      },
      bind,
      session,
    })
  const anchored: Affidavit['anchored'] = (proof, waiting = {}) =>
    awaitAnchor(proof, { gateway, policy: notaries.policy, options: waiting })
  await notaries.refresh(signal)
  await notaries.target({ encrypt, only: null, latest: null, gone: null })
  await providers?.refresh(signal)
  return {
    baseURL,
    anthropicBaseURL: `${baseURL}/anthropic`,
    fetch: openFetch(null, undefined),
    startSession: (session = {}) => createSession(session, { open: openFetch, anchored }),
    get notaries() {
      return notaries.list().attested
    },
    get refused() {
      return notaries.list().refused
    },
    get providers() {
      return providers?.list().attested ?? []
    },
    get refusedProviders() {
      return providers?.list().refused ?? []
    },
    proofs,
    onProof(listener) {
      if (typeof listener !== 'function') throw invalid('expected onProof to get a function')
      listeners.add(listener)
      return () => {
        listeners.delete(listener)
      }
    },
    anchored,
    refresh: async () => {
      await notaries.refresh()
      await providers?.refresh()
    },
    updateReleases: async (newer) => {
      notaries.replacePolicy(releases.update(newer))
      await notaries.refresh()
    },
  }
}

/** Loads the code for judging providers on demand, because it is over a quarter of all code. */
async function openProviders(
  gateway: AskedGateway,
  {
    policy,
    rpc: url,
    now,
  }: Pick<ConnectOptions, 'policy' | 'rpc'> & { readonly now: () => number },
): Promise<Providers | null> {
  const policies = await readProviderPolicies(policy).catch(throwInvalidPolicy)
  if (policies === null && url !== undefined)
    throw invalid('expected policy.providers beside rpc: the chain shows the age of their evidence')
  if (policies === null) return null
  checkRpc(url)
  const { fetch, timeoutMs } = gateway
  const rpc = url === undefined ? null : createRpc({ url, fetch, timeoutMs })
  const { createProviders } = await import('./providers.ts')
  return createProviders(gateway, { policies, rpc, now })
}

function throwInvalidPolicy(cause: unknown): never {
  if (!(cause instanceof PolicyError)) throw cause
  throw new AffidavitError('invalid_options', cause.message, { cause })
}

const MEMBERS: ReadonlySet<string> = new Set<keyof ConnectOptions>([
  'url',
  'apiKey',
  'policy',
  'rpc',
  'allowDebug',
  'encrypt',
  'hold',
  'proofsMax',
  'answerBytesMax',
  'timeoutMs',
  'onProof',
  'fetch',
  'signal',
])

/** Callers in JavaScript have no types, so a misspelt option would be ignored. */
function checkMembers(options: ConnectOptions): void {
  if (!hasOwnMembersAlone(options)) throw invalid('expected options to be an object')
  const unknown = Object.keys(options).find((name) => !MEMBERS.has(name))
  if (unknown !== undefined)
    throw invalid(`expected options without ${unknown}: there are ${[...MEMBERS].join(', ')}`)
  const { policy, allowDebug, encrypt, hold, apiKey, onProof, fetch, signal } = ownMembers(options)
  if (policy === undefined)
    throw invalid('expected the option policy: it says which enclaves you accept')
  for (const [name, value] of Object.entries({ allowDebug, encrypt, hold }))
    if (value !== undefined && typeof value !== 'boolean')
      throw invalid(`expected ${name} to be true or false`)
  if (apiKey !== undefined && (typeof apiKey !== 'string' || !/^[\x21-\x7e]{1,512}$/.test(apiKey)))
    throw invalid('expected apiKey to be an API key')
  for (const [name, value] of Object.entries({ onProof, fetch }))
    if (value !== undefined && typeof value !== 'function')
      throw invalid(`expected ${name} to be a function`)
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw invalid('expected signal to be an AbortSignal')
}

/**
 * Returns the URL without a slash at its end. `http` is accepted only for the same computer: a key
 * must not be sent unencrypted over a network.
 */
function readUrl(text: unknown): string {
  let url: URL
  try {
    url = new URL(String(text))
  } catch (cause) {
    throw new AffidavitError('invalid_options', `url: ${messageOf(cause)}`, { cause })
  }
  if (url.search !== '' || url.hash !== '' || url.username !== '' || url.password !== '')
    throw invalid('expected url without a query, fragment, name or password')
  if (!/^https?:$/.test(url.protocol) || !isSafeForKey(url))
    throw invalid('expected url to be https, or http on this machine')
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '')
}

function timeoutOf(value: unknown): number {
  const timeoutMs = countOf(value, 'timeoutMs', TIMEOUT_MS_DEFAULT)
  if (timeoutMs <= TIMEOUT_MS_MAX) return timeoutMs
  throw invalid(`expected timeoutMs to be at most ${TIMEOUT_MS_MAX}`)
}

function countOf(value: unknown, name: string, byDefault: number): number {
  if (value === undefined) return byDefault
  if (Number.isSafeInteger(value) && Number(value) > 0) return Number(value)
  throw invalid(`expected ${name} to be a whole number from 1`)
}

function invalid(message: string): AffidavitError {
  return new AffidavitError('invalid_options', message)
}
