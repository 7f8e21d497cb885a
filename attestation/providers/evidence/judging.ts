import type { ProviderCheck, ProviderChecks } from '../provider-checks.ts'
import type { EvidenceCheckName } from './evidence-codes.ts'
import type { ProviderEvidence } from './evidence-document.ts'
import type { HardwareFacts, ProviderTcb } from './judge-hardware.ts'
import type { CodeTerms, ProviderPolicy } from './provider-policy.ts'

/** A TLS key that the hardware evidence states. */
export type BoundKey = {
  /** SHA-256 of the SubjectPublicKeyInfo, hex, as in `provider_keys`. */
  readonly spkiSha256: string
  /** Null: any host. */
  readonly domain: string | null
}

/** The code that answered. A signature or a measurement proves each fact. */
export type ProviderCode = {
  readonly by: 'release' | 'measurements' | 'application' | 'enclave'
  /** OWNER/NAME on GitHub. Null unless a signed build names it. */
  readonly repository: string | null
  /** The tag or branch that was built. Null unless a signed build names it. */
  readonly release: string | null
  /** Digest (hex) of the artifact, the app_compose or the boot configuration. */
  readonly digest: string | null
}

/** A model whose weights the measured code names. */
export type MeasuredModel = {
  readonly name: string
  /** Repository and revision, `OWNER/NAME@REVISION`. */
  readonly source: string
  /** Root hash of the weights (dm-verity), hex. */
  readonly rootHash: string
}

export type ProviderModel = {
  /**
   * `hardware_proven`: the machine that answered measured the root hashes of the weights.
   * `provider_claimed`: the provider names a model. `unknown`: neither.
   */
  readonly weights: 'hardware_proven' | 'provider_claimed' | 'unknown'
  /** For people. */
  readonly reason: string
  /** Empty unless `hardware_proven`. */
  readonly models: readonly MeasuredModel[]
}

/**
 * Facts from the document of one kind of provider. A fact is null or empty if its check did not
 * pass.
 */
export type KindFacts = {
  readonly tee: 'TDX' | 'SEV-SNP' | 'Nitro' | null
  readonly tcb: ProviderTcb | null
  /** Hex, by the name of the register. */
  readonly measurements: Readonly<Record<string, string>>
  readonly isDebugOff: boolean
  readonly tlsKeys: readonly BoundKey[]
  /** The X25519 key that the hardware states for encrypted requests, hex. */
  readonly encryptionKey: string | null
  readonly code: ProviderCode | null
  readonly model: ProviderModel
  readonly gpus: readonly string[]
  /** The end of the evidence's validity, Unix milliseconds. Null if it has no end. */
  readonly endsAtMs: number | null
}

export type Judging = {
  readonly evidence: ProviderEvidence
  readonly terms: ProviderTerms
  readonly checks: ProviderChecks<EvidenceCheckName>
  readonly at: Date
  /** Adds the checks of one part of the evidence to the report. */
  add(part: string, checks: readonly ProviderCheck[]): void
}

/** The terms of the policy. Without a policy: the default terms, and `code` is null. */
export type ProviderTerms = Omit<ProviderPolicy, 'kind' | 'origins' | 'code'> & {
  readonly code: CodeTerms | null
}

export const UNKNOWN_WEIGHTS: ProviderModel = {
  weights: 'unknown',
  reason: 'no measured value names the weights',
  models: [],
}

/** The facts if the hardware was not verified. */
export const NO_KIND_FACTS: KindFacts = {
  tee: null,
  tcb: null,
  measurements: {},
  isDebugOff: false,
  tlsKeys: [],
  encryptionKey: null,
  code: null,
  model: UNKNOWN_WEIGHTS,
  gpus: [],
  endsAtMs: null,
}

/** Returns the facts that do not depend on the report data. */
export function hardwareFactsOf(
  { tee, tcb, measurements, endsAtMs }: HardwareFacts,
  isDebugOff: boolean,
): KindFacts {
  return { ...NO_KIND_FACTS, tee, tcb, measurements, endsAtMs, isDebugOff }
}

/** Returns the earliest end of validity. Null: no end. */
export function earliestOf(...ends: readonly (number | null)[]): number | null {
  const known = ends.filter((end) => end !== null)
  return known.length === 0 ? null : Math.min(...known)
}

/** Finds the first check of `names` that did not pass and is not waived. */
export function findOpen(
  checks: readonly ProviderCheck[],
  names: readonly string[],
): ProviderCheck | undefined {
  return checks.find(
    ({ name, outcome, isWaived }) => names.includes(name) && outcome !== 'passed' && !isWaived,
  )
}
