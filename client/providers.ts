import { encodeHex, sha256 } from '#attestation/bytes.ts'
import { PROVIDER_KEYS_MAX } from '#attestation/demands.ts'
import {
  type LookedUpBlock,
  PROVIDER_EVIDENCE_BYTES_MAX,
} from '#attestation/providers/evidence/evidence-document.ts'
import { judgeByPolicies } from '#attestation/providers/evidence/judge-by-policies.ts'
import type { ProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import type { ProviderFacts } from '#attestation/providers/evidence/verify-provider-evidence.ts'
import { type ProviderCheck, requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { type AskedGateway, askGateway, readFromGateway } from './ask-gateway.ts'
import { unreachableChain } from './chain-facts.ts'
import { AffidavitError, messageOf, shown } from './errors.ts'
import { type ListedProvider, readListedProviders } from './listed-providers.ts'
import { lookUpNonceBlock } from './nonce-block.ts'
import { type Rpc, RpcError } from './rpc.ts'

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
 * expires.
 */
export function createProviders(
  gateway: AskedGateway,
  options: {
    /** A provider must pass one of the policies for its kind and origin. */
    readonly policies: readonly ProviderPolicy[]
    /** The chain of the nonces' blocks. Null: the age of evidence is not checked. */
    readonly rpc: Rpc | null
    readonly now: () => number
  },
): Providers {
  const { now, rpc, policies } = options
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
  const judged = await judgeEvidence(bytes, { policies: fitting, origin, lookedUp, atMs: now() })
  return { provider, ...judged }
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
    policies,
    origin,
    lookedUp,
    atMs,
  }: {
    readonly policies: readonly ProviderPolicy[]
    readonly origin: string
    readonly lookedUp: LookedUpBlock | null
    readonly atMs: number
  },
): Promise<Omit<AttestedProvider, 'provider'>> {
  const at = new Date(atMs)
  const { facts, checks, policy } = await judgeByPolicies(bytes, policies, at, lookedUp)
  try {
    requireChecks(checks)
  } catch (cause) {
    if (!(cause instanceof ProviderEvidenceError)) throw cause
    throw refusal(`${cause.code}: ${cause.message}`, cause)
  }
  if (policy === null || facts?.origin !== origin) throw refusal(`expected evidence of ${origin}`)
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
