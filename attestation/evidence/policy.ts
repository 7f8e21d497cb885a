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
import { OUTCOMES, type Receipt } from '../receipt.ts'

/**
 * What the caller demands of a bundle. Code and configuration that are not given are not checked,
 * and the bundle is not `verified`. Demands of other forms or names are refused with PolicyError.
 */
export type BundlePolicy = {
  /**
   * The code that is acceptable: sets of measurements, one of which the attestation document must
   * have in full. Left out, or no set: not checked. A set that is empty is refused.
   */
  readonly measurements?: readonly MeasurementSet[]
  /**
   * As in AttestationPolicy: releases that are acceptable beside those sets. Left out: none are
   * expected. An empty list is one that accepts no code: it fails every document.
   */
  readonly releases?: AttestationPolicy['releases']
  /**
   * The boot configurations that are acceptable, by digest (32 bytes, digestBootConfiguration):
   * which providers at which origins, which certificate authorities, which chain and contract.
   * Measurements do not cover what the operator sets at boot: with CAs of its own, it could answer
   * in a provider's name. The configuration that the matched release names, if any, is expected as
   * well. Without either, the configuration is not checked. Never take it from the gateway whose
   * evidence is checked.
   */
  readonly configurations?: readonly Uint8Array[]
  /**
   * Outcomes that are accepted beside `complete`. An answer with another outcome was cut: by its
   * caller, by a gateway that closed the connection in mid-stream, or by its provider. When its
   * outcome is not named here, the check `outcome` does not pass, and the bundle is `consistent` at
   * best. Default: none.
   */
  readonly outcomes?: readonly Receipt['outcome'][]
  /** As in AttestationPolicy. Default: AWS's root. */
  readonly roots?: AttestationPolicy['roots']
  /** As in AttestationPolicy. Default: none known. */
  readonly revoked?: AttestationPolicy['revoked']
  /** As in AttestationPolicy. Default: false. */
  readonly allowDebug?: boolean
  /**
   * How many blocks the block must be deep in the chain, itself included, when a chain is given.
   * Default CONFIRMATIONS_MIN_DEFAULT; 1 at least.
   */
  readonly confirmationsMin?: number
}

/** Whether the policy says which code is acceptable. */
export function expectsCode({ measurements = [], releases }: BundlePolicy): boolean {
  return measurements.length > 0 || releases !== undefined
}

/**
 * The block is on the chain. How deep is safe depends on the chain; Ethereum calls 64 blocks final.
 */
export const CONFIRMATIONS_MIN_DEFAULT = 1

/**
 * What a chain says, asked for by the caller. It is believed as far as the endpoint is that was
 * asked.
 */
export type ChainFacts = {
  readonly chainId: number
  /**
   * Hash of the chain's block of the bundle's block number: 0x, either case; null when it has none
   * of that number.
   */
  readonly blockHash: string | null
  /** Number of the chain's newest block. */
  readonly newestBlock: number
}

/** What verifyBundle takes beside bundle and policy. */
export type BundleContext = {
  /** Left out: the bundle is checked offline. */
  readonly chain?: ChainFacts
  /**
   * Remembers the certificate chains it verified, so that many bundles of one enclave cost less.
   * Default: none.
   */
  readonly attestations?: AttestationVerifier
}

/**
 * Gives the policy's own members after checking their form. Types do not bind a caller in
 * JavaScript, and an expectation that is misspelt or malformed must not count as met. A member that
 * is undefined counts as left out. Throws PolicyError naming the member.
 *
 * Does NOT say that anything is expected: with no members nothing is, and then nothing is
 * `verified`.
 */
export function readPolicy(policy: BundlePolicy): BundlePolicy {
  checkMembers(policy, 'policy', POLICY_FORMS)
  return ownMembers(policy)
}

/**
 * The same of a BundleContext: what is given beside bundle and policy. Throws PolicyError naming
 * the member.
 */
export function readContext(context: BundleContext): BundleContext {
  checkMembers(context, 'context', CONTEXT_FORMS)
  return ownMembers(context)
}

/** Throws PolicyError when `value`, called `name` in the message, has not the form. */
type Form = (value: unknown, name: string) => void

/** A form for each member that a type has. */
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
  roots: (value, name) => {
    listOf(BYTES_32)(value, name)
    if (isList(value) && value.length === 0) throw unfit(name, 'one root or more, or left out')
  },
  revoked: listOf((value, name) => checkMembers(value, name, REVOKED_FORMS, 'all')),
  allowDebug: (value, name) => {
    if (typeof value !== 'boolean') throw unfit(name, 'true or false')
  },
  confirmationsMin: (value, name) => {
    if (!isCount(value) || value === 0) throw unfit(name, 'a whole number from 1 to 2^53-1')
  },
}

const REVOKED_FORMS = { issuer: bytesOf(null), serial: bytesOf(null) }

const CONTEXT_FORMS: Forms<BundleContext> = {
  chain: (value, name) => checkMembers(value, name, CHAIN_FORMS, 'all'),
  attestations: (value, name) => {
    const verify = isRecord(value) && Object.hasOwn(value, 'verify') ? value.verify : null
    if (typeof verify !== 'function') throw unfit(name, 'a verifier of createAttestationVerifier')
  },
}

const CHAIN_FORMS: Forms<ChainFacts> = {
  chainId: checkCount,
  blockHash: (value, name) => {
    if (value !== null && !(typeof value === 'string' && BLOCK_HASH.test(value)))
      throw unfit(name, `0x and ${HASH_BYTES} bytes of hex, or null`)
  },
  newestBlock: checkCount,
}

const BLOCK_HASH = /^0x[0-9a-fA-F]{64}$/

/** Own members alone, none unknown. `all`: none left out either. */
function checkMembers(
  value: unknown,
  name: string,
  forms: Readonly<Record<string, Form>>,
  needed?: 'all',
): void {
  if (!isPlainObject(value)) throw unfit(name, `an object of ${Object.keys(forms).join(', ')}`)
  const unknown = Object.keys(value).find((member) => !Object.hasOwn(forms, member))
  if (unknown !== undefined)
    throw unfit(name, `without a member ${unknown}: there are ${Object.keys(forms).join(', ')}`)
  const own = ownMembers(value)
  for (const [member, check] of Object.entries(forms)) {
    const given = own[member]
    if (given !== undefined || needed === 'all') check(given, `${name}.${member}`)
  }
}

function listOf(check: Form): Form {
  return (value, name) => {
    if (!isList(value)) throw unfit(name, 'an array')
    // Not forEach, which passes over holes.
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

function checkCount(value: unknown, name: string): void {
  if (!isCount(value)) throw unfit(name, 'a whole number from 0 to 2^53-1')
}

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value)
}

/**
 * No array, Map or instance of a class, whose members are not its own: nothing in it would be seen.
 */
function isPlainObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return hasOwnMembersAlone(value)
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

function unfit(name: string, expectation: string): PolicyError {
  return new PolicyError(`expected ${name} to be ${expectation}`)
}
