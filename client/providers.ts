import { encodeHex, encodeUtf8, sha256 } from '#attestation/bytes.ts'
import { PROVIDER_KEYS_MAX } from '#attestation/demands.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import {
  type LookedUpBlock,
  PROVIDER_EVIDENCE_BYTES_MAX,
} from '#attestation/providers/evidence/evidence-document.ts'
import { isParsedPolicy } from '#attestation/providers/evidence/mark-parsed.ts'
import {
  type ProviderPolicy,
  parseProviderPolicy,
} from '#attestation/providers/evidence/provider-policy.ts'
import {
  type ProviderFacts,
  verifyProviderEvidence,
} from '#attestation/providers/evidence/verify-provider-evidence.ts'
import { type ProviderCheck, requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { type AskedGateway, askGateway, readFromGateway } from './ask-gateway.ts'
import { unreachableChain } from './chain-facts.ts'
import { AffidavitError, messageOf, shown } from './errors.ts'
import { type ListedProvider, readListedProviders } from './listed-providers.ts'
import { lookUpNonceBlock } from './nonce-block.ts'
import { type Rpc, RpcError } from './rpc.ts'

/** The option `providers` of connect: which providers may receive a call. */
export type ProvidersOption = {
  /**
   * Policies of providers: the text or bytes of a policy file, its JSON as an object, or the result
   * of parseProviderPolicy. A provider must pass one of the policies for its kind and origin.
   */
  readonly policies: readonly (string | Uint8Array | object)[]
}

/** A provider whose evidence passed every check of a policy. */
export type AttestedProvider = {
  /** As the gateway states it. */
  readonly provider: string
  readonly origin: string
  /** TLS keys that the evidence states for this origin: SHA-256 of each, hex. */
  readonly keys: readonly string[]
  /** When the evidence expires, or becomes older than its policy accepts. */
  readonly validUntil: Date
  readonly checks: readonly ProviderCheck[]
  /** The facts that the evidence proves: hardware, code, model with its weights, block. */
  readonly facts: ProviderFacts
}

/** A provider whose newest evidence was refused, or that no policy accepts. */
export type RefusedProvider = {
  /** Null if a policy names the origin and the gateway does not list it. */
  readonly provider: string | null
  readonly origin: string
  readonly reason: AffidavitError
}

export type Providers = {
  list(): {
    readonly attested: readonly AttestedProvider[]
    readonly refused: readonly RefusedProvider[]
  }
  /**
   * Returns the TLS keys of the attested providers, sorted. Asks for newer evidence first, if some
   * evidence has ended or a provider changed its key. Throws the errors of `refresh`.
   */
  keys(): Promise<readonly string[]>
  /** Records that a provider showed another key: the next call asks for newer evidence. */
  expectNewKey(): void
  /**
   * Requests and judges the newest evidence. Throws AffidavitError `no_attested_provider` if no
   * attested provider is left, and the errors of askGateway.
   */
  refresh(signal?: AbortSignal): Promise<void>
}

const POLICIES_MAX = 64
/** Newer evidence is requested when less time is left, milliseconds. */
const RENEW_BEFORE_MS = 30 * 60_000
/**
 * Shortest time between two judgements of evidence during calls, milliseconds. Without this pause,
 * a hostile gateway could cause a judgement at each call: it can claim that a key has changed. The
 * pause also ends if the clock is set back.
 */
const JUDGE_PAUSE_MS = 10_000

/**
 * Keeps the attested providers of one gateway. `now` returns Unix milliseconds. All evidence is
 * verified, so the gateway can only withhold newer evidence. Accepted evidence is used until it
 * expires. Throws AffidavitError `invalid_options`.
 */
export function createProviders(
  gateway: AskedGateway,
  options: {
    readonly policies: ProvidersOption['policies']
    /** The chain of the nonces' blocks. Null: the age of evidence is not checked. */
    readonly rpc: Rpc | null
    readonly now: () => number
  },
): Providers {
  const { now, rpc } = options
  const policies = readPolicies(options.policies)
  let attested: readonly AttestedProvider[] = []
  let refused: readonly RefusedProvider[] = []
  let judging: Promise<void> | null = null
  let judgedAtMs = Number.NEGATIVE_INFINITY
  let isKeyChanged = false

  const leftMs = ({ validUntil }: AttestedProvider) => validUntil.getTime() - now()
  const listValid = () => attested.filter((one) => leftMs(one) > 0)

  async function judgeAll(signal?: AbortSignal): Promise<void> {
    const known = listValid()
    const outcomes = await judgeListed(gateway, { policies, known, rpc, now, signal })
    const accepted = outcomes.filter((one) => 'keys' in one)
    const isNewer = ({ origin }: AttestedProvider) => accepted.some((one) => one.origin === origin)
    attested = [...accepted, ...known.filter((one) => !isNewer(one))]
    refused = outcomes.filter((one) => 'reason' in one)
    judgedAtMs = now()
    isKeyChanged = false
  }

  async function refresh(signal?: AbortSignal): Promise<void> {
    judging ??= judgeAll(signal).finally(() => {
      judging = null
    })
    await judging
    if (listValid().length === 0) throw noProvider(refused)
  }

  return {
    list: () => ({ attested: listValid(), refused }),
    expectNewKey: () => {
      isKeyChanged = true
    },
    refresh,
    async keys() {
      const isRested = Math.abs(now() - judgedAtMs) >= JUDGE_PAUSE_MS
      const isNeeded = isKeyChanged || attested.length === 0 || listValid().length < attested.length
      const isDue = attested.some((one) => leftMs(one) < RENEW_BEFORE_MS)
      if (isRested && isNeeded)
        await refresh().catch((fault: unknown) => {
          if (listValid().length === 0) throw fault
        })
      // Calls do not wait for newer evidence while all known evidence is valid.
      else if (isRested && isDue) void refresh().catch(() => undefined)
      const keys = new Set(listValid().flatMap((one) => one.keys))
      if (keys.size === 0) throw noProvider(refused)
      if (keys.size > PROVIDER_KEYS_MAX)
        throw refusal(`expected at most ${PROVIDER_KEYS_MAX} keys of providers, got ${keys.size}`)
      return [...keys].sort()
    },
  }
}

/** Throws AffidavitError `invalid_options`. */
function readPolicies(given: ProvidersOption['policies']): readonly ProviderPolicy[] {
  if (!Array.isArray(given) || given.length === 0 || given.length > POLICIES_MAX)
    throw invalidOptions(`expected providers.policies to be a list of 1 to ${POLICIES_MAX}`)
  return given.map((one: ProvidersOption['policies'][number], at) => {
    if (isPolicy(one)) return one
    try {
      return parseProviderPolicy(bytesOf(one))
    } catch (cause) {
      // JSON.stringify throws TypeError for a policy object with a cycle.
      if (!(cause instanceof PolicyError || cause instanceof TypeError)) throw cause
      throw invalidOptions(`providers.policies.${at}: ${cause.message}`)
    }
  })
}

function isPolicy(given: string | Uint8Array | object): given is ProviderPolicy {
  return typeof given === 'object' && isParsedPolicy(given)
}

function bytesOf(given: string | Uint8Array | object): Uint8Array {
  if (given instanceof Uint8Array) return given
  return encodeUtf8(typeof given === 'string' ? given : (JSON.stringify(given) ?? ''))
}

type Judging = {
  readonly policies: readonly ProviderPolicy[]
  /** Attested providers whose evidence is still valid. */
  readonly known: readonly AttestedProvider[]
  readonly rpc: Rpc | null
  readonly now: () => number
  readonly signal: AbortSignal | undefined
}

/**
 * Documents are large, so the providers are judged one after the other. The time limit of the
 * gateway applies to all documents together.
 */
async function judgeListed(
  gateway: AskedGateway,
  parts: Judging,
): Promise<readonly (AttestedProvider | RefusedProvider)[]> {
  const { policies, signal } = parts
  const { json } = await askGateway(gateway, '/v1/providers', { signal })
  const listed = readListedProviders(json)
  const endMs = performance.now() + gateway.timeoutMs
  const outcomes: (AttestedProvider | RefusedProvider)[] = []
  for (const entry of listed) {
    const timeoutMs = Math.max(1, Math.round(endMs - performance.now()))
    try {
      outcomes.push(await judgeEntry({ ...gateway, timeoutMs }, entry, parts))
    } catch (fault) {
      signal?.throwIfAborted()
      if (!(fault instanceof AffidavitError)) throw fault
      outcomes.push({ provider: entry.provider, origin: entry.origin, reason: fault })
    }
  }
  const origins = new Set(policies.flatMap((policy) => policy.origins))
  for (const { origin } of listed) origins.delete(origin)
  const reason = refusal('the gateway does not list this provider')
  return [...outcomes, ...[...origins].map((origin) => ({ provider: null, origin, reason }))]
}

/** Throws AffidavitError if no policy accepts the evidence. */
async function judgeEntry(
  gateway: AskedGateway,
  { provider, origin, kind, digest }: ListedProvider,
  { policies, known, rpc, now, signal }: Judging,
): Promise<AttestedProvider> {
  const fitting = policies.filter((one) => one.kind === kind && one.origins.includes(origin))
  if (fitting.length === 0) throw refusal('no policy is for its kind and origin')
  if (digest === null) throw refusal('the gateway has no evidence for this provider')
  const same = known.find((one) => one.facts.digest === digest && one.origin === origin)
  if (same !== undefined) return { ...same, provider }
  const bytes = await readFromGateway(gateway, `/v1/providers/evidence/${digest}`, {
    bytesMax: PROVIDER_EVIDENCE_BYTES_MAX,
    signal,
  })
  if (encodeHex(sha256(bytes)) !== digest)
    throw new AffidavitError('invalid_reply', 'expected the evidence to have the stated digest')
  const lookedUp = rpc === null ? null : await lookUp(rpc, bytes)
  const refusals: AffidavitError[] = []
  for (const policy of fitting) {
    try {
      return {
        provider,
        ...(await judgeEvidence(bytes, { policy, origin, lookedUp, atMs: now() })),
      }
    } catch (fault) {
      if (!(fault instanceof AffidavitError)) throw fault
      refusals.push(fault)
    }
  }
  throw refusals[0] ?? refusal('no policy accepts it')
}

/** Throws AffidavitError `unreachable`. */
async function lookUp(rpc: Rpc, bytes: Uint8Array): Promise<LookedUpBlock | null> {
  try {
    return await lookUpNonceBlock(rpc, bytes)
  } catch (fault) {
    throw fault instanceof RpcError ? unreachableChain(fault) : fault
  }
}

async function judgeEvidence(
  bytes: Uint8Array,
  {
    policy,
    origin,
    lookedUp,
    atMs,
  }: {
    readonly policy: ProviderPolicy
    readonly origin: string
    readonly lookedUp: LookedUpBlock | null
    readonly atMs: number
  },
): Promise<Omit<AttestedProvider, 'provider'>> {
  const { facts, checks } = await verifyProviderEvidence(bytes, policy, new Date(atMs), lookedUp)
  try {
    requireChecks(checks)
  } catch (cause) {
    if (!(cause instanceof ProviderEvidenceError)) throw cause
    throw refusal(`${cause.code}: ${cause.message}`, cause)
  }
  if (facts?.origin !== origin) throw refusal(`expected evidence of ${origin}`)
  const keys = facts.tlsKeys.map(({ spkiSha256 }) => spkiSha256)
  const { blockTimeMs, fetchedAtMs, endsAtMs } = facts
  const endMs = Math.min(
    (blockTimeMs ?? fetchedAtMs) + policy.maxAgeMs,
    endsAtMs ?? Number.MAX_VALUE,
  )
  return { origin, keys, validUntil: new Date(endMs), checks, facts }
}

function noProvider(refused: readonly RefusedProvider[]): AffidavitError {
  const reasons = refused.map(({ provider, origin, reason }) => {
    const named = provider === null ? origin : `${provider} (${origin})`
    return `${shown(named)}: ${shown(messageOf(reason))}`
  })
  return refusal(`no provider of the gateway is attested: ${reasons.join('; ')}`)
}

function refusal(message: string, cause?: ProviderEvidenceError): AffidavitError {
  return new AffidavitError('no_attested_provider', message, cause === undefined ? {} : { cause })
}

function invalidOptions(message: string): AffidavitError {
  return new AffidavitError('invalid_options', message)
}
