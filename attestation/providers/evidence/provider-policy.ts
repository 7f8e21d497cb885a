import { FormatError } from '../../errors.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { type Json, type JsonObject, memberAt } from '../../json/value.ts'
import { AWS_ROOT_SHA256, type MeasurementSet, PolicyError } from '../../nitro/policy.ts'
import type { DstackImage } from '../dstack/dstack-policy.ts'
import { NVIDIA_ROOT_SHA256 } from '../nvidia/verify-gpu-evidence.ts'
import {
  ANY_TAG,
  type CodeIdentity,
  SIGSTORE_TRUST,
  type SigstoreTrust,
} from '../sigstore/sigstore-trust.ts'
import { AMD_ROOTS, type SnpRoots } from '../snp/policy.ts'
import { INTEL_ROOT_SHA256, type TdxMeasurements } from '../tdx/tdx-policy.ts'
import { PROVIDER_KINDS, type ProviderKind } from './evidence-document.ts'
import {
  NO_SNP_TERMS,
  NO_TDX_TERMS,
  onPlatforms,
  readSnpTerms,
  readTdxTerms,
  type SnpTerms,
  type TdxTerms,
} from './hardware-terms.ts'
import { markParsed } from './mark-parsed.ts'
import {
  flagIn,
  hashesIn,
  imagesIn,
  pcrSetsIn,
  policyForms,
  policyList,
  policyObject,
  rootsIn,
  TDX_REGISTERS,
  tdxSetsIn,
  wholeIn,
} from './policy-members.ts'

export type CodeTerms =
  | { readonly by: 'release'; readonly identity: CodeIdentity }
  | {
      readonly by: 'measurements'
      /** Each set has MRTD and RTMR0 to RTMR2. */
      readonly tdx: readonly TdxMeasurements[]
      readonly snp: readonly Uint8Array[]
    }
  | {
      readonly by: 'application'
      readonly composeHashes: readonly Uint8Array[]
      readonly appIds: readonly Uint8Array[] | null
      readonly images: 'any' | readonly DstackImage[]
    }
  | {
      readonly by: 'enclave'
      readonly measurements: readonly MeasurementSet[]
      readonly configurations: readonly Uint8Array[]
    }

export type ProviderRoots = {
  readonly intel: readonly Uint8Array[]
  readonly amd: SnpRoots
  readonly nvidia: readonly Uint8Array[]
  readonly aws: readonly Uint8Array[]
  readonly sigstore: SigstoreTrust
  /** True if the policy replaces a built-in root. Such a policy is for development. */
  readonly isReplaced: boolean
}

/** The evidence that a verifier accepts from one provider. */
export type ProviderPolicy = {
  readonly kind: ProviderKind
  readonly origins: readonly string[]
  readonly maxAgeMs: number
  readonly needsBlock: boolean
  /** True: a document without a nonce is accepted (version 2 of Tinfoil's documents). */
  readonly acceptsNoNonce: boolean
  readonly code: CodeTerms
  /** Null: TDX is refused. */
  readonly tdx: TdxTerms | null
  readonly snp: SnpTerms | null
  readonly gpu: 'required' | 'optional'
  /** Root hashes of accepted weights, hex. Null: not checked. */
  readonly weights: readonly string[] | null
  readonly roots: ProviderRoots
}

/** The maximum age if a policy has no `max_age_hours`. */
const AGE_HOURS_MAX_DEFAULT = 24

const DEFAULT_ROOTS: ProviderRoots = {
  intel: [INTEL_ROOT_SHA256],
  amd: AMD_ROOTS,
  nvidia: [NVIDIA_ROOT_SHA256],
  aws: [AWS_ROOT_SHA256],
  sigstore: SIGSTORE_TRUST,
  isReplaced: false,
}

/** The terms without a policy: hardware is checked, code is not. */
export const NO_PROVIDER_POLICY: Omit<ProviderPolicy, 'kind' | 'origins' | 'code'> = {
  maxAgeMs: AGE_HOURS_MAX_DEFAULT * 3_600_000,
  needsBlock: false,
  acceptsNoNonce: false,
  tdx: NO_TDX_TERMS,
  snp: NO_SNP_TERMS,
  gpu: 'optional',
  weights: null,
  roots: DEFAULT_ROOTS,
}

/**
 * Parses a policy file: JSON with the members of formats.md, and no others. Refuses an empty list
 * of accepted code, because it probably comes from a failed lookup. Throws PolicyError.
 *
 * @example
 * const policy = parseProviderPolicy(file)
 * const { facts, checks } = await verifyProviderEvidence(evidence, policy, at)
 */
export function parseProviderPolicy(bytes: Uint8Array): ProviderPolicy {
  try {
    const policy = readPolicyFile(parseExactJson(bytes))
    markParsed(policy)
    return policy
  } catch (fault) {
    if (!(fault instanceof FormatError)) throw fault
    throw new PolicyError(`provider policy: ${fault.message}`)
  }
}

const { invalid, textOf } = policyForms

/** A policy may also have the members that are common to all kinds. */
const MEMBERS_OF_KIND: Readonly<Record<ProviderKind, readonly string[]>> = {
  tinfoil: ['release', 'measurements', 'tdx', 'snp', 'weights', 'accepts_no_nonce', 'gpu'],
  dstack: ['compose_hashes', 'app_ids', 'images', 'tdx', 'gpu'],
  aci: ['compose_hashes', 'app_ids', 'images', 'tdx', 'gpu'],
  nitro: ['measurements', 'configurations'],
}

function readPolicyFile(json: Json): ProviderPolicy {
  const named = policyObject(json, 'the policy', { optional: null })
  const kind = PROVIDER_KINDS.find((one) => one === named.kind)
  if (kind === undefined) throw invalid('kind', PROVIDER_KINDS.join(', '))
  const members = policyObject(json, 'the policy', {
    required: ['version', 'kind', 'origins'],
    optional: ['max_age_hours', 'needs_block', 'roots', ...MEMBERS_OF_KIND[kind]],
  })
  if (members.version !== 1) throw invalid('version', '1')
  const { needs_block, accepts_no_nonce, gpu = 'optional', weights } = members
  checkHardware(members, kind)
  const tdx = members.tdx === undefined ? null : readTdxTerms(members.tdx, kind)
  if (gpu !== 'required' && gpu !== 'optional') throw invalid('gpu', 'required or optional')
  return {
    kind,
    origins: policyList(members.origins, 'origins', readOrigin),
    maxAgeMs: wholeIn(members.max_age_hours, 'max_age_hours', AGE_HOURS_MAX_DEFAULT) * 3_600_000,
    needsBlock: flagIn(needs_block, 'needs_block', false),
    acceptsNoNonce: flagIn(accepts_no_nonce, 'accepts_no_nonce', false),
    code: readCode(members, kind, tdx),
    tdx,
    snp: members.snp === undefined ? null : readSnpTerms(members.snp),
    gpu,
    weights:
      weights === undefined
        ? null
        : policyList(weights, 'weights', (item, name) => policyForms.hexOf(item, name, 32)),
    roots: members.roots === undefined ? DEFAULT_ROOTS : readRoots(members.roots),
  }
}

/**
 * Refuses hardware without accepted code, and code without hardware: each is probably a mistake.
 */
function checkHardware(
  { tdx, snp, measurements, weights, release }: JsonObject,
  kind: ProviderKind,
) {
  const isTinfoil = kind === 'tinfoil'
  if (isTinfoil ? tdx === undefined && snp === undefined : kind !== 'nitro' && tdx === undefined)
    throw invalid('the policy', isTinfoil ? 'with tdx, snp or both' : 'with tdx')
  if (isTinfoil && measurements !== undefined)
    for (const [name, terms] of Object.entries({ tdx, snp }))
      if ((terms === undefined) !== (memberAt(measurements, name) === undefined))
        throw invalid('the policy', `with ${name} and measurements.${name}, or without both`)
  if (weights !== undefined && release === undefined)
    throw invalid('weights', 'beside release, as measurements do not name weights')
}

function readOrigin(json: Json, name: string): string {
  const text = textOf(json, name)
  if (!URL.canParse(text) || new URL(text).origin !== text || !text.startsWith('https://'))
    throw invalid(name, 'an https origin such as https://host')
  return text
}

function readCode(members: JsonObject, kind: ProviderKind, tdx: TdxTerms | null): CodeTerms {
  switch (kind) {
    case 'tinfoil':
      return readTinfoilCode(members, tdx)
    case 'dstack':
    case 'aci':
      return {
        by: 'application',
        composeHashes: hashesIn(members.compose_hashes, 'compose_hashes', 32),
        appIds: members.app_ids === undefined ? null : hashesIn(members.app_ids, 'app_ids', 20),
        images: members.images === 'any' ? 'any' : imagesIn(members.images, 'images'),
      }
    case 'nitro':
      return {
        by: 'enclave',
        measurements: pcrSetsIn(members.measurements, 'measurements'),
        configurations: hashesIn(members.configurations, 'configurations', 32),
      }
  }
}

function readTinfoilCode({ release, measurements }: JsonObject, terms: TdxTerms | null): CodeTerms {
  if ((release === undefined) === (measurements === undefined))
    throw invalid('the policy', 'with either release or measurements')
  if (release !== undefined) return { by: 'release', identity: readIdentity(release) }
  const { tdx, snp } = policyObject(measurements, 'measurements', { optional: ['tdx', 'snp'] })
  if (tdx === undefined && snp === undefined)
    throw invalid('measurements', 'an object of tdx, snp or both')
  return {
    by: 'measurements',
    tdx: terms === null ? [] : readSets(tdx, terms),
    snp: snp === undefined ? [] : hashesIn(snp, 'measurements.snp', 48),
  }
}

/**
 * With MRTD or RTMR0 of any value, a host could boot its own firmware and state the accepted
 * kernel. With RTMR1 or RTMR2 of any value, accepted firmware could boot any kernel.
 */
function readSets(json: Json | undefined, { platforms }: TdxTerms): readonly TdxMeasurements[] {
  const name = 'measurements.tdx'
  const sets = onPlatforms(tdxSetsIn(json, name, { optional: TDX_REGISTERS }), platforms)
  const isWhole = sets.every(({ mrTd, rtmr0, rtmr1, rtmr2 }) => mrTd && rtmr0 && rtmr1 && rtmr2)
  if (!isWhole) throw invalid(name, 'sets with mrtd, rtmr0, rtmr1 and rtmr2, platforms included')
  if (sets.length === 0) throw invalid(name, 'sets of which one is on one of tdx.platforms')
  return sets
}

function readIdentity(json: Json): CodeIdentity {
  const { repository, refs, digests } = policyObject(json, 'release', {
    required: ['repository', 'refs'],
    optional: ['digests'],
  })
  const isRef = /^refs\/(?:tags|heads)\/[A-Za-z0-9][A-Za-z0-9._/-]*$/
  const isRepository = /^[A-Za-z0-9-]+\/[A-Za-z0-9._-]+$/
  return {
    repository: textOf(repository, 'release.repository', {
      form: isRepository,
      expectation: 'OWNER/NAME',
    }),
    refs: policyList(refs, 'release.refs', (item, name) => {
      const text = textOf(item, name)
      if (text !== ANY_TAG && !isRef.test(text)) throw invalid(name, `a ref, or ${ANY_TAG}`)
      return text
    }),
    digests:
      digests === undefined
        ? null
        : policyList(digests, 'release.digests', (item, name) => policyForms.hexOf(item, name, 32)),
  }
}

function readRoots(json: Json): ProviderRoots {
  const roots = rootsIn(json, 'roots')
  return { ...DEFAULT_ROOTS, ...roots, isReplaced: true }
}
