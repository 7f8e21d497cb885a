import { decodeBase64, decodeHex, equalBytes, sha256 } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { AttestationError } from '#attestation/nitro/attestation-error.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { AttestationFacts } from '#attestation/nitro/facts.ts'
import { type AttestationPolicy, AWS_ROOT_SHA256 } from '#attestation/nitro/policy.ts'
import {
  createAttestationVerifier,
  verifyAttestation,
} from '#attestation/nitro/verify-attestation.ts'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'
import type { LogDomain } from '#attestation/tree-head.ts'
import { type Identity, PROTOCOL_VERSION } from '#enclave/protocol/enclave-api.ts'
import { LruMap } from '../runtime/lru-map.ts'
import { findReleaseFault } from './accepted-releases.ts'
import { ENCLAVES_MAX } from './settings.ts'

export type CheckedIdentity = Pick<
  Identity,
  'notary' | 'attestation' | 'public_key' | 'boot_configuration'
>

type ExpectedEnclave = {
  readonly domain: LogDomain
  readonly isProduction: boolean
  /** True in production with only simulated security modules. */
  readonly isStaging?: boolean
  /** Null: any measurements are accepted. */
  readonly releases?: readonly ReleaseEntry[] | null
  readonly at: Date
}

/**
 * Returns the reasons why this gateway must not use an enclave, one sentence for each. Every mode
 * refuses another protocol, chain or contract. Production also refuses a document of another root
 * than AWS's, a document of another enclave, and an enclave without encryption to providers. With
 * releases, the measurements must belong to a release that is accepted now. In development and
 * staging, any root may have signed the document, so its measurements are only a claim. Staging
 * refuses AWS's documents, because staging must not make evidence. Without releases, does NOT prove
 * that the enclave runs good code: users of the enclave's records must check the code.
 */
export async function findEnclaveFaults(
  identity: CheckedIdentity,
  expected: ExpectedEnclave,
  verify = verifyIdentity,
): Promise<readonly string[]> {
  const { isProduction, isStaging = false, releases = null, at } = expected
  const faults = domainFaults(identity, expected.domain)
  if (isProduction) faults.push(...providerFaults(identity))
  if (!isProduction && releases === null) return faults
  if (isStaging && isUnderAwsRoot(identity.attestation))
    faults.push('enclave: expected a simulated security module in staging, got a document of AWS')
  const verified = await verify(identity, { isRootKnown: isProduction && !isStaging, at })
  if (verified.kind === 'fault') return [...faults, `enclave: ${verified.fault}`]
  const fault = releases === null ? null : findReleaseFault(verified.facts, releases, at.getTime())
  return fault === null ? faults : [...faults, `enclave: ${fault}`]
}

/**
 * A faulty document is checked again after this time, because the document or the clock may then be
 * correct.
 */
export const FAULT_AGE_MAX_MS = 10_000

/**
 * Returns a check for repeated use: a valid document is verified again only after one of its
 * certificates has expired. `releases` are checked each time, at `now`, Unix milliseconds.
 * `monotonic` returns milliseconds of a clock that is never set.
 */
export function createEnclaveCheck({
  releases,
  now,
  monotonic,
  ...expected
}: Pick<ExpectedEnclave, 'domain' | 'isProduction' | 'isStaging'> & {
  readonly releases: () => readonly ReleaseEntry[] | null
  readonly now: () => number
  readonly monotonic: () => number
}): (identity: CheckedIdentity) => Promise<readonly string[]> {
  const known = new LruMap<string, Known>(ENCLAVES_MAX)
  const verify: typeof verifyIdentity = async (identity, options) => {
    const key = JSON.stringify([
      identity.attestation,
      identity.public_key,
      identity.boot_configuration,
    ])
    const atMs = options.at.getTime()
    const before = known.get(key)
    if (before !== undefined && isStillSo(before, { atMs, monotonicMs: monotonic() }))
      return before.verified
    const verified = await verifyIdentity(identity, options)
    known.set(key, { verified, foundAtMs: monotonic() })
    return verified
  }
  return (identity) =>
    findEnclaveFaults(identity, { ...expected, releases: releases(), at: new Date(now()) }, verify)
}

/** `foundAtMs` is a time of the clock that is never set. */
type Known = { readonly verified: Verified; readonly foundAtMs: number }

function isStillSo(
  { verified, foundAtMs }: Known,
  { atMs, monotonicMs }: { readonly atMs: number; readonly monotonicMs: number },
): boolean {
  if (verified.kind === 'fault') return monotonicMs - foundAtMs < FAULT_AGE_MAX_MS
  return verified.facts.certificates.every(
    ({ notBeforeMs, notAfterMs }) => notBeforeMs <= atMs && atMs <= notAfterMs,
  )
}

function domainFaults({ boot_configuration: boot }: CheckedIdentity, domain: LogDomain): string[] {
  const faults: string[] = []
  if (boot.protocol_version !== PROTOCOL_VERSION)
    faults.push(
      `enclave: expected protocol version ${PROTOCOL_VERSION}, got ${boot.protocol_version}`,
    )
  if (boot.chain_id !== domain.chainId)
    faults.push(`enclave: expected it to sign for chain ${domain.chainId}, got ${boot.chain_id}`)
  if (boot.contract !== domain.contract)
    faults.push(
      `enclave: expected it to sign for contract ${domain.contract}, got ${boot.contract}`,
    )
  return faults
}

function providerFaults({ boot_configuration: boot }: CheckedIdentity): readonly string[] {
  const clear = boot.providers.filter(({ origin }) => !origin.startsWith('https://'))
  return clear.map(
    ({ name }) => `enclave: expected production to reach provider ${name} over https`,
  )
}

type Verified =
  | { readonly kind: 'facts'; readonly facts: AttestationFacts }
  | { readonly kind: 'fault'; readonly fault: string }

async function verifyIdentity(
  identity: CheckedIdentity,
  { isRootKnown, at }: { readonly isRootKnown: boolean; readonly at: Date },
): Promise<Verified> {
  try {
    const document = decodeBase64(identity.attestation)
    const facts = await verifyAttestation(document, policyFor(document, isRootKnown), at)
    const digest = digestBootConfiguration(identity.boot_configuration)
    if (facts.publicKey === null || !equalBytes(facts.publicKey, decodeHex(identity.public_key)))
      return faulty('expected its attestation document to carry its key')
    if (facts.userData === null || !equalBytes(facts.userData, digest))
      return faulty(
        'expected its attestation document to carry the digest of its boot configuration',
      )
    return { kind: 'facts', facts }
  } catch (error) {
    if (!(error instanceof AttestationError)) throw error
    const hint = error.code === 'root_untrusted' ? ': is its security module simulated?' : ''
    const expectation = isRootKnown ? 'that AWS signed in production' : 'that holds'
    return faulty(`expected an attestation document ${expectation}, got ${error.code}${hint}`)
  }
}

function faulty(fault: string): Verified {
  return { kind: 'fault', fault }
}

/** True if the document claims AWS's root. False for an unreadable document. */
function isUnderAwsRoot(document: string): boolean {
  try {
    const [root] = decodeAttestationPayload(decodeBase64(document)).cabundle
    return root !== undefined && equalBytes(sha256(root), AWS_ROOT_SHA256)
  } catch {
    return false
  }
}

/**
 * Accepts any measurements, which are checked later. Accepts the document's own root if no root is
 * known.
 */
function policyFor(document: Uint8Array, isRootKnown: boolean): AttestationPolicy {
  if (isRootKnown) return { measurements: 'any' }
  const [root] = decodeAttestationPayload(document).cabundle
  return { measurements: 'any', allowDebug: true, roots: root === undefined ? [] : [sha256(root)] }
}

/**
 * Returns a function that rejects if an attestation document (standard base64) is not valid at the
 * time `now`, Unix milliseconds. With `isRootKnown`, the root must be AWS's. Otherwise any root is
 * accepted, because the security module is simulated. Does NOT check measurements: users of the
 * records decide which code is acceptable.
 */
export function createAttestationCheck({
  isRootKnown,
  now,
}: {
  readonly isRootKnown: boolean
  readonly now: () => number
}): (document: string) => Promise<void> {
  const verifier = createAttestationVerifier()
  // After the first check, only the certificates' expiry is checked.
  let known: { readonly document: string; readonly notAfterMs: number } | null = null
  return async (document) => {
    const atMs = now()
    if (known?.document === document && atMs <= known.notAfterMs) return
    const bytes = decodeBase64(document)
    const { certificates } = await verifier.verify(
      bytes,
      policyFor(bytes, isRootKnown),
      new Date(atMs),
    )
    known = { document, notAfterMs: Math.min(...certificates.map(({ notAfterMs }) => notAfterMs)) }
  }
}
