import type { Release } from '../release/release.ts'
import { type Bindings, findBindings } from './bindings.ts'
import type { Certificate } from './certificate.ts'
import { isDebugMode, type MatchedCode } from './checks.ts'
import type { AttestationDocument } from './document.ts'
import type { ResolvedPolicy } from './policy.ts'
import { outcomesOfAcceptance, type RuleOutcome } from './rule-outcomes.ts'

/** One certificate of the verified chain. Names are one-line texts; times are Unix milliseconds, inclusive. */
export type CertificateFacts = {
  readonly subject: string
  readonly issuer: string
  /** DER of the issuer's name, as a revocation names it. */
  readonly issuerEncoding: Uint8Array
  readonly serial: Uint8Array
  readonly sha256: Uint8Array
  readonly notBeforeMs: number
  readonly notAfterMs: number
}

/**
 * What a document proves under the policy it was verified with. The README of this folder says in plain words what
 * follows from it and what does not.
 */
export type AttestationFacts = {
  readonly moduleId: string
  /** When the document was made, Unix milliseconds, by the clock of its host's security module. */
  readonly timestampMs: number
  /** The time at which all certificates were valid, Unix milliseconds. */
  readonly verifiedAtMs: number
  readonly mode: 'current' | 'historical'
  /** All PCR values of the document, 48 bytes each by index, ascending. */
  readonly measurements: ReadonlyMap<number, Uint8Array>
  /** Index of the expected set that matched; null when any measurement was accepted, or a release. */
  readonly matchedSet: number | null
  /** The release of the policy that matched, accepted at timestampMs; null when none was asked for, or a set matched. */
  readonly release: Release | null
  /** What the enclave's code put there; null when absent. */
  readonly publicKey: Uint8Array | null
  readonly userData: Uint8Array | null
  readonly nonce: Uint8Array | null
  /** True only where the policy allowed it: then nothing is known of the code, and the host can read its memory. */
  readonly isDebugMode: boolean
  /** Root first, leaf last. */
  readonly certificates: readonly CertificateFacts[]
  readonly bindings: Bindings
  /** Keys of the payload beyond AWS's format; their values were not looked at. */
  readonly unknownKeys: readonly string[]
  readonly rules: readonly RuleOutcome[]
}

/** What was established on the way, to be put together. */
export type Established = {
  readonly document: AttestationDocument
  readonly certificates: readonly Certificate[]
  readonly leaf: Certificate
  readonly policy: ResolvedPolicy
  readonly matched: MatchedCode
  readonly verifiedAtMs: number
}

/** Gives the facts of a document whose every check passed. */
export function gatherFacts({
  document,
  certificates,
  leaf,
  policy,
  ...rest
}: Established): AttestationFacts {
  const bindings = findBindings(document, leaf)
  const isDebug = isDebugMode(document)
  return {
    moduleId: document.moduleId,
    timestampMs: document.timestampMs,
    verifiedAtMs: rest.verifiedAtMs,
    mode: policy.mode,
    measurements: document.pcrs,
    matchedSet: rest.matched.matchedSet,
    release: rest.matched.release,
    publicKey: document.publicKey,
    userData: document.userData,
    nonce: document.nonce,
    isDebugMode: isDebug,
    certificates: certificates.map(factsOf),
    bindings,
    unknownKeys: document.unknownKeys,
    rules: outcomesOfAcceptance(policy, { bindings, isDebug, release: rest.matched.release }),
  }
}

function factsOf({
  subject,
  issuer,
  serial,
  sha256,
  notBeforeMs,
  notAfterMs,
}: Certificate): CertificateFacts {
  return {
    subject: subject.text,
    issuer: issuer.text,
    issuerEncoding: issuer.encoding,
    serial,
    sha256,
    notBeforeMs,
    notAfterMs,
  }
}
