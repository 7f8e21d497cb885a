import { randomBytes } from 'node:crypto'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import {
  EVIDENCE_PATHS,
  type NonceBlock,
  PROVIDER_EVIDENCE_BYTES_MAX,
  type ProviderKind,
  providerNonce,
  writeProviderEvidence,
} from '#attestation/providers/evidence/evidence-document.ts'
import type { ProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import {
  type ProviderFacts,
  verifyProviderEvidence,
} from '#attestation/providers/evidence/verify-provider-evidence.ts'
import type { RecentBlock } from '../chain/chain-reads.ts'
import type { Logger } from '../observability/logger.ts'
import { fetchCollateral } from './collateral.ts'
import { FetchFault, type FetchFaultCode, fetchOverTls } from './fetch-over-tls.ts'
import type { CollateralOrigins, NamedBuild } from './settings.ts'

/** A provider of the enclave's table whose evidence is collected. */
export type CollectedProvider = {
  readonly name: string
  /** https. */
  readonly origin: string
  readonly kind: ProviderKind
  readonly build: NamedBuild | null
  /** A policy that trusts development roots. Null: the hardware makers' roots are trusted. */
  readonly policy: ProviderPolicy | null
}

/** Why evidence was not stored. */
export type CollectionFaultCode =
  | FetchFaultCode
  | 'challenge_mismatch' // the evidence contains another nonce
  | 'key_missing' //        no verified part contains a TLS key
  | 'key_mismatch' //       the connection's key is not in the evidence

/** The provider gave no evidence that can be stored. */
export class CollectionFault extends Error {
  readonly code: CollectionFaultCode

  constructor(code: CollectionFaultCode, message: string) {
    super(message)
    this.name = 'CollectionFault'
    this.code = code
  }
}

export type CollectionParts = {
  readonly origins: CollateralOrigins
  /** PEM of the authorities that are trusted for every host. Null: the system's authorities. */
  readonly ca: readonly string[] | null
  readonly fetchRecentBlock: (signal: AbortSignal) => Promise<RecentBlock>
  /** Unix milliseconds. */
  readonly now: () => number
  readonly log: Logger
  /** Limit for one answer. Default: ANSWER_TIMEOUT_MS. */
  readonly timeoutMs?: number
}

/** A machine with eight GPUs takes some seconds to quote. */
const ANSWER_TIMEOUT_MS = 20_000
const BLOCK_TIMEOUT_MS = 10_000
/** Maximum sizes of a provider's document, and of one part of its collateral. */
const ANSWER_BYTES_MAX = 2 * 1024 * 1024
const COLLATERAL_BYTES_MAX = 256 * 1024

/** `isComplete`: the collateral in the document is complete. */
export type Collected = {
  readonly document: Uint8Array
  readonly facts: ProviderFacts
  readonly isComplete: boolean
}

/**
 * Collects a provider's evidence for a nonce from a recent block, with the collateral of its
 * hardware. Calls `onKey` with the key of the connection (SHA-256, hex). Checks only that the
 * document contains this key, and the nonce if it has one. Throws FetchFault, CollectionFault, or
 * the reason of `signal`.
 */
export async function collectEvidence(
  provider: CollectedProvider,
  parts: CollectionParts,
  { signal, onKey }: { readonly signal: AbortSignal; readonly onKey: (spki: string) => void },
): Promise<Collected> {
  const { kind, origin, policy } = provider
  const limits = { ca: parts.ca, timeoutMs: parts.timeoutMs ?? ANSWER_TIMEOUT_MS, signal }
  const block = await readBlock(parts, signal)
  const nonce = block === null ? randomBytes(32) : providerNonce(block.hash, origin)
  let spki: string | null = null
  const answer = await fetchOverTls(
    `${origin}${EVIDENCE_PATHS[kind]}?${QUERIES[kind](encodeHex(nonce))}`,
    {
      ...limits,
      bytesMax: ANSWER_BYTES_MAX,
      onKey(key) {
        spki = key
        onKey(key)
      },
    },
  )
  const fetchedAtMs = Math.floor(parts.now())
  const { kept: collateral, isComplete } = await fetchCollateral(
    { provider: provider.name, kind, build: provider.build, body: answer.body },
    {
      ...parts,
      fetch: (href) => fetchOverTls(href, { ...limits, bytesMax: COLLATERAL_BYTES_MAX }),
    },
  )
  const document = writeProviderEvidence({
    kind,
    origin,
    nonce,
    fetchedAtMs,
    block,
    responses: [answer],
    collateral,
  })
  if (document.length > PROVIDER_EVIDENCE_BYTES_MAX)
    throw new FetchFault('answer_too_large', 'expected less of answer and collateral together')
  const { facts, checks } = await verifyProviderEvidence(document, policy, new Date(fetchedAtMs))
  if (checks.some(({ name, outcome }) => name === 'challenge' && outcome === 'failed'))
    throw new CollectionFault('challenge_mismatch', 'expected an answer over the nonce')
  if (facts === null || facts.tlsKeys.length === 0)
    throw new CollectionFault('key_missing', 'expected evidence that states a TLS key')
  if (!facts.tlsKeys.some(({ spkiSha256 }) => spkiSha256 === spki))
    throw new CollectionFault('key_mismatch', `expected evidence that states the key ${spki}`)
  return { document, facts, isComplete }
}

/** The query for evidence that contains the nonce, by kind of provider. */
const QUERIES: Readonly<Record<ProviderKind, (nonce: string) => string>> = {
  tinfoil: (nonce) => `nonce=${nonce}`,
  dstack: (nonce) => `version=2&signing_algo=ecdsa&include_tls_fingerprint=true&nonce=${nonce}`,
  aci: (nonce) => `nonce=${nonce}`,
  nitro: (nonce) => `nonce=${nonce}`,
}

/** Null while the chain cannot be read: the nonce is then random. */
async function readBlock(
  { fetchRecentBlock, log }: CollectionParts,
  signal: AbortSignal,
): Promise<NonceBlock | null> {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(BLOCK_TIMEOUT_MS)])
  try {
    const { hash, ...block } = await fetchRecentBlock(limited)
    return { ...block, hash: decodeHex(hash.slice(2)) }
  } catch (error) {
    signal.throwIfAborted()
    log.warn({ err: error }, 'no recent block for the nonce of provider evidence')
    return null
  }
}
