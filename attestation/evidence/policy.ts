import { HASH_BYTES } from '../bytes.ts'
import { isCount } from '../json/value.ts'
import {
  type AttestationPolicy,
  checkMeasurementSet,
  checkRelease,
  type MeasurementSet,
  PolicyError,
} from '../nitro/policy.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { hasOwnMembersAlone, ownMembers } from '../own-members.ts'
import type { LookedUpBlock } from '../providers/evidence/evidence-document.ts'
import { isParsedPolicy } from '../providers/evidence/mark-parsed.ts'
import type { ProviderPolicy } from '../providers/evidence/provider-policy.ts'
import { OUTCOMES, type Receipt } from '../receipt.ts'

/**
 * What the caller demands from a bundle. A bundle is `verified` only if the policy expects both a
 * code and a configuration. Unknown names and wrong forms are refused with PolicyError.
 */
export type BundlePolicy = {
  /**
   * The accepted code: the document must match all values of one set. Without sets and without
   * `releases`, the code is not checked. An empty set is refused.
   */
  readonly measurements?: readonly MeasurementSet[]
  /**
   * Same as in AttestationPolicy: releases that are accepted in addition to the sets. If left out,
   * no release is expected. With an empty list and no sets, every document fails.
   */
  readonly releases?: AttestationPolicy['releases']
  /**
   * Digests (32 bytes, digestBootConfiguration) of the accepted boot configurations. If the matched
   * release names a configuration, the digest must match the release too. Without any digest, here
   * or in the release, the configuration is not checked. A configuration sets the providers and
   * their origins, the certificate authorities, the chain and the contract. With an added CA, the
   * operator could answer in a provider's name. Never take a digest from the gateway under test.
   */
  readonly configurations?: readonly Uint8Array[]
  /**
   * Outcomes that are accepted in addition to `complete`: answers that their caller, a gateway or
   * their provider cut. With any other outcome, the bundle is `incomplete` at best. Default: [].
   */
  readonly outcomes?: readonly Receipt['outcome'][]
  /**
   * Policies of providers (parseProviderPolicy). If given, `verified` needs evidence of the
   * provider's machine that one of them accepts. Not checked if left out.
   */
  readonly providers?: readonly ProviderPolicy[]
  /** Same as in AttestationPolicy. Default: AWS's root. */
  readonly roots?: AttestationPolicy['roots']
  /** Same as in AttestationPolicy. By default, no revocations are known. */
  readonly revoked?: AttestationPolicy['revoked']
  /** Same as in AttestationPolicy. Default: false. */
  readonly allowDebug?: boolean
  /**
   * The number of blocks that the chain must have from the bundle's block on, including that block.
   * Used if a chain is passed. Default CONFIRMATIONS_MIN_DEFAULT. At least 1.
   */
  readonly confirmationsMin?: number
}

export function expectsCode({ measurements = [], releases }: BundlePolicy): boolean {
  return measurements.length > 0 || releases !== undefined
}

/** 1: the block is on the chain. A safe number differs by chain. On Ethereum, 64 is final. */
export const CONFIRMATIONS_MIN_DEFAULT = 1

/**
 * Facts that the caller read from the chain. They are as trustworthy as the endpoint of the chain.
 */
export type ChainFacts = {
  readonly chainId: number
  /**
   * Hash of the chain's block with the bundle's block number: 0x, upper or lower case. Null if the
   * chain has no block with this number.
   */
  readonly blockHash: string | null
  readonly newestBlock: number
  /**
   * The chain's block with the number of the block in the evidence of the provider. Null if the
   * chain has no such block. If left out, it was not looked up.
   */
  readonly providerBlock?: LookedUpBlock['block']
}

/** The numbers of the blocks that evidence names, and their chain. Null: it names none. */
export type NamedBlocks = {
  readonly anchor: number | null
  readonly provider: number | null
  readonly chainId: number | null
}

export const NO_BLOCKS: NamedBlocks = { anchor: null, provider: null, chainId: null }

/** Reads the facts of the named blocks from a chain. */
export type AskChain = (blocks: NamedBlocks) => Promise<ChainFacts>

export type BundleContext = {
  /** If left out, the bundle is checked without a chain. */
  readonly chain?: ChainFacts
  /** Caches verified certificate chains, for many bundles from one enclave. Default: no cache. */
  readonly attestations?: AttestationVerifier
}

/**
 * Checks the form of the policy and returns its own members: a misspelt or malformed expectation
 * must not count as met. An undefined member counts as left out. Throws PolicyError naming the
 * member. Does NOT check that the policy expects anything. Without expectations, nothing is
 * `verified`.
 */
export function readPolicy(policy: BundlePolicy): BundlePolicy {
  checkMembers(policy, 'policy', POLICY_FORMS)
  return ownMembers(policy)
}

/** Checks the context as readPolicy checks the policy. Throws PolicyError naming the member. */
export function readContext(context: BundleContext): BundleContext {
  checkMembers(context, 'context', CONTEXT_FORMS)
  return ownMembers(context)
}

/** Throws PolicyError if `value` has a wrong form. The message calls the value `name`. */
type Form = (value: unknown, name: string) => void

type Forms<Type> = Readonly<Record<keyof Type, Form>>

const BYTES_32 = bytesOf(HASH_BYTES)

const POLICY_FORMS: Forms<BundlePolicy> = {
  measurements: listOf(checkMeasurementSet),
  releases: listOf(checkRelease),
  configurations: listOf(BYTES_32),
  outcomes: listOf((value, name) => {
    if (!OUTCOMES.some((known) => known === value))
      throw unfit(name, `one of ${OUTCOMES.join(', ')}`)
  }),
  providers: (value, name) => {
    listOf((one, where) => {
      if (!isRecord(one) || !isParsedPolicy(one))
        throw unfit(where, 'a policy of parseProviderPolicy')
    })(value, name)
    if (isList(value) && value.length === 0) throw unfit(name, 'one policy or more, or left out')
  },
  roots: (value, name) => {
    listOf(BYTES_32)(value, name)
    if (isList(value) && value.length === 0) throw unfit(name, 'one root or more, or left out')
  },
  revoked: listOf((value, name) => checkMembers(value, name, REVOKED_FORMS, [])),
  allowDebug: (value, name) => {
    if (typeof value !== 'boolean') throw unfit(name, 'true or false')
  },
  confirmationsMin: (value, name) => {
    if (!isCount(value) || value === 0) throw unfit(name, 'a whole number from 1 to 2^53-1')
  },
}

const REVOKED_FORMS = { issuer: bytesOf(null), serial: bytesOf(null) }

const CONTEXT_FORMS: Forms<BundleContext> = {
  chain: (value, name) => checkMembers(value, name, CHAIN_FORMS, ['providerBlock']),
  attestations: (value, name) => {
    const verify = isRecord(value) && Object.hasOwn(value, 'verify') ? value.verify : null
    if (typeof verify !== 'function') throw unfit(name, 'a verifier of createAttestationVerifier')
  },
}

const CHAIN_FORMS: Forms<ChainFacts> = {
  chainId: checkCount,
  blockHash: (value, name) => {
    if (value !== null) checkBlockHash(value, name)
  },
  newestBlock: checkCount,
  providerBlock: (value, name) => {
    if (value !== null) checkMembers(value, name, PROVIDER_BLOCK_FORMS, [])
  },
}

const PROVIDER_BLOCK_FORMS = { hash: checkBlockHash, timestamp: checkCount }

const BLOCK_HASH = /^0x[0-9a-fA-F]{64}$/

/** Refuses unknown members. No member may be left out, but for those in `optional`. */
function checkMembers(
  value: unknown,
  name: string,
  forms: Readonly<Record<string, Form>>,
  optional: readonly string[] = Object.keys(forms),
): void {
  if (!hasOwnMembersAlone(value)) throw unfit(name, `an object of ${Object.keys(forms).join(', ')}`)
  const unknown = Object.keys(value).find((member) => !Object.hasOwn(forms, member))
  if (unknown !== undefined)
    throw unfit(name, `without a member ${unknown}: there are ${Object.keys(forms).join(', ')}`)
  const own = ownMembers(value)
  for (const [member, check] of Object.entries(forms)) {
    const given = own[member]
    if (given !== undefined || !optional.includes(member)) check(given, `${name}.${member}`)
  }
}

function listOf(check: Form): Form {
  return (value, name) => {
    if (!isList(value)) throw unfit(name, 'an array')
    // forEach would skip the holes of a sparse array.
    for (const [at, item] of value.entries()) check(item, `${name}.${at}`)
  }
}

function bytesOf(length: number | null): Form {
  return (value, name) => {
    if (!(value instanceof Uint8Array) || (length !== null && value.length !== length))
      throw unfit(
        name,
        `a Uint8Array${length === null ? '' : ` of ${length} bytes`}; of hex, decodeHex makes one`,
      )
  }
}

function checkBlockHash(value: unknown, name: string): void {
  if (!(typeof value === 'string' && BLOCK_HASH.test(value)))
    throw unfit(name, `0x and ${HASH_BYTES} bytes of hex, or null`)
}

function checkCount(value: unknown, name: string): void {
  if (!isCount(value)) throw unfit(name, 'a whole number from 0 to 2^53-1')
}

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value)
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

function unfit(name: string, expectation: string): PolicyError {
  return new PolicyError(`expected ${name} to be ${expectation}`)
}
