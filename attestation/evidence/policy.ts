import type { AttestationPolicy, MeasurementSet } from '../nitro/policy.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import type { Receipt } from '../receipt.ts'

/**
 * What the caller demands of a bundle. Whatever is not given is not checked, and then nothing is `verified`. What is given in
 * another form, or under another name, is refused with PolicyError.
 */
export type BundlePolicy = {
  /**
   * The code that is acceptable: sets of measurements, one of which the attestation document must have in full.
   * Left out, or no set: not checked. A set that is empty is refused.
   */
  readonly measurements?: readonly MeasurementSet[]
  /**
   * As in AttestationPolicy: releases that are acceptable beside those sets. Left out: none are expected. An empty list is
   * one that accepts no code: it fails every document.
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
   * How many blocks the block must be deep in the chain, itself included, when a chain is given. Default
   * CONFIRMATIONS_MIN_DEFAULT; 1 at least.
   */
  readonly confirmationsMin?: number
}

/** Whether the policy says which code is acceptable. */
export function expectsCode({ measurements = [], releases }: BundlePolicy): boolean {
  return measurements.length > 0 || releases !== undefined
}

/** The block is on the chain. How deep is safe depends on the chain; Ethereum calls 64 blocks final. */
export const CONFIRMATIONS_MIN_DEFAULT = 1

/** What a chain says, asked for by the caller. It is believed as far as the endpoint is that was asked. */
export type ChainFacts = {
  readonly chainId: number
  /** Hash of the chain's block of the bundle's block number: 0x, either case; null when it has none of that number. */
  readonly blockHash: string | null
  /** Number of the chain's newest block. */
  readonly newestBlock: number
}

/** What verifyBundle takes beside bundle and policy. */
export type BundleContext = {
  /** Left out: the bundle is checked offline. */
  readonly chain?: ChainFacts
  /** Remembers the certificate chains it verified, so that many bundles of one enclave cost less. Default: none. */
  readonly attestations?: AttestationVerifier
}
