import { sha384 } from '@noble/hashes/sha2.js'
import { concatBytes, encodeUtf8, equalBytes } from '../bytes.ts'
import type { Release } from '../release/release.ts'
import { nameRelease } from '../release/release-name.ts'
import { type AttestationError, RULES, type RuleNumber, STAGES } from './attestation-error.ts'
import type { Certificate } from './certificate.ts'
import { isDebugMode, type MatchedCode } from './checks.ts'
import { type AttestationDocument, PCR_BYTES } from './document.ts'
import type { ResolvedPolicy } from './policy.ts'

/**
 * One certificate of the verified chain. Names are one-line texts. Times are Unix milliseconds,
 * inclusive.
 */
export type CertificateFacts = {
  readonly subject: string
  readonly issuer: string
  /** DER of the issuer's name. Revocations use this form. */
  readonly issuerEncoding: Uint8Array
  readonly serial: Uint8Array
  readonly sha256: Uint8Array
  readonly notBeforeMs: number
  readonly notAfterMs: number
}

/**
 * The facts that a document proves under the caller's policy (README.md, What a valid document
 * proves).
 */
export type AttestationFacts = {
  readonly moduleId: string
  /** The time in the document, Unix milliseconds, by the clock of the host's security module. */
  readonly timestampMs: number
  /** The time at which the certificates had to be valid, Unix milliseconds. */
  readonly verifiedAtMs: number
  readonly mode: 'current' | 'historical'
  /** All PCR values of the document, 48 bytes each by index, ascending. */
  readonly measurements: ReadonlyMap<number, Uint8Array>
  /** Index of the expected set that matched. Null if a release matched, or any code is accepted. */
  readonly matchedSet: number | null
  /**
   * The release that matched, accepted at timestampMs. Null if a set matched, or any code is
   * accepted.
   */
  readonly release: Release | null
  /** Fields that the code in the enclave set. Null if absent. */
  readonly publicKey: Uint8Array | null
  readonly userData: Uint8Array | null
  readonly nonce: Uint8Array | null
  /**
   * True only if the policy allows debug mode. Then the code is not known, and the host can read
   * the enclave's memory.
   */
  readonly isDebugMode: boolean
  /** Root first, leaf last. */
  readonly certificates: readonly CertificateFacts[]
  readonly bindings: Bindings
  /** Keys in the payload that AWS's format does not have. Their values were not checked. */
  readonly unknownKeys: readonly string[]
  readonly rules: readonly RuleOutcome[]
}

type Established = {
  readonly document: AttestationDocument
  readonly certificates: readonly Certificate[]
  readonly leaf: Certificate
  readonly policy: ResolvedPolicy
  readonly matched: MatchedCode
  readonly verifiedAtMs: number
}

/** The document must have passed every check. */
export function gatherFacts({
  document,
  certificates,
  leaf,
  policy,
  matched,
  verifiedAtMs,
}: Established): AttestationFacts {
  const bindings = findBindings(document, leaf)
  const isDebug = isDebugMode(document)
  return {
    moduleId: document.moduleId,
    timestampMs: document.timestampMs,
    verifiedAtMs,
    mode: policy.mode,
    measurements: document.pcrs,
    matchedSet: matched.matchedSet,
    release: matched.release,
    publicKey: document.publicKey,
    userData: document.userData,
    nonce: document.nonce,
    isDebugMode: isDebug,
    certificates: certificates.map(factsOf),
    bindings,
    unknownKeys: document.unknownKeys,
    rules: outcomesOfAcceptance(policy, { bindings, isDebug, release: matched.release }),
  }
}

/** Copies the bytes, because the cached certificate can also serve the next document. */
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
    issuerEncoding: issuer.encoding.slice(),
    serial: serial.slice(),
    sha256: sha256.slice(),
    notBeforeMs,
    notAfterMs,
  }
}

/**
 * Which parts of a document name the same instance (rule 25). These facts are only reported,
 * because AWS does not document these parts. Null if a comparison is not possible.
 */
type Bindings = {
  /** EC2 instance id, the part of module_id before `-enc`. Null for other forms of module_id. */
  readonly instanceId: string | null
  /** PCR4 = SHA-384 of 48 zero bytes and the instance id. */
  readonly pcr4: boolean | null
  /** The leaf's common name begins with module_id. */
  readonly leafCommonName: boolean | null
  /** The issuer's common name begins with the instance id. */
  readonly issuerCommonName: boolean | null
}

function findBindings({ moduleId, pcrs }: AttestationDocument, leaf: Certificate): Bindings {
  const instanceId = /^(i-[0-9a-f]+)-enc[0-9a-f]+$/.exec(moduleId)?.[1] ?? null
  const pcr4 = pcrs.get(4)
  return {
    instanceId,
    pcr4: instanceId !== null && pcr4 ? equalBytes(pcr4, instanceMeasurement(instanceId)) : null,
    leafCommonName: beginsWith(leaf.subject.commonName, moduleId),
    issuerCommonName: beginsWith(leaf.issuer.commonName, instanceId),
  }
}

/** The value of PCR4 on this instance. */
function instanceMeasurement(instanceId: string): Uint8Array {
  return sha384(concatBytes(new Uint8Array(PCR_BYTES), encodeUtf8(instanceId)))
}

/** A separator must follow the prefix, because i-1 must not match i-12. */
function beginsWith(name: string | null, prefix: string | null): boolean | null {
  if (name === null || prefix === null) return null
  return name === prefix || (name.startsWith(prefix) && /^[.-]/.test(name.slice(prefix.length)))
}

/**
 * The outcome of one rule. A rule that is `not checked` has not passed: the policy did not need it,
 * or the document was refused before. `reported`: a fact that never refuses a document.
 */
export type RuleOutcome = {
  readonly rule: RuleNumber
  readonly title: string
  readonly outcome: 'passed' | 'failed' | 'not checked' | 'reported'
  /** The reason or the result. May be empty. */
  readonly detail: string
}

function outcomesOfAcceptance(
  policy: ResolvedPolicy,
  {
    bindings,
    isDebug,
    release,
  }: { readonly bindings: Bindings; readonly isDebug: boolean; readonly release: Release | null },
): readonly RuleOutcome[] {
  return listRules((rule) => {
    if (rule === 25) return { outcome: 'reported', detail: describeBindings(bindings) }
    if (rule === 23 && !isDebug) return { outcome: 'passed', detail: '' }
    if (rule === 24 && release) return { outcome: 'passed', detail: nameRelease(release) }
    return askedFor(rule, policy)
  })
}

/**
 * Returns the outcomes for a refused document. Rules of earlier stages passed, and the broken rule
 * failed. All other rules are not checked, except in the policy stage: there, the rules before the
 * broken rule passed.
 */
export function outcomesOfRefusal(
  error: AttestationError,
  policy: ResolvedPolicy,
): readonly RuleOutcome[] {
  return listRules((rule) => {
    if (rule === error.rule) return { outcome: 'failed', detail: `${error.code}: ${error.message}` }
    return heldBefore(rule, error) ? askedFor(rule, policy) : skipped('refused before')
  })
}

function heldBefore(rule: RuleNumber, error: AttestationError): boolean {
  const { stage } = RULES[rule]
  if (stage === error.stage) return stage === 'policy' && rule < error.rule
  // Rule 6 also covers the payload, but only the parse stage reads the payload.
  if (rule === 6 && error.stage === 'parse') return false
  return STAGES.indexOf(stage) < STAGES.indexOf(error.stage)
}

type Verdict = Pick<RuleOutcome, 'outcome' | 'detail'>

function listRules(judge: (rule: RuleNumber) => Verdict): readonly RuleOutcome[] {
  return RULE_NUMBERS.map((rule) => ({ rule, title: RULES[rule].title, ...judge(rule) }))
}

const RULE_NUMBERS = Object.keys(RULES).map(Number) as readonly RuleNumber[]

function askedFor(rule: RuleNumber, policy: ResolvedPolicy): Verdict {
  const { mode, revoked, revocationLists, nonce, measurements, allowDebug } = policy
  if (rule === 18 && mode === 'historical') {
    return { outcome: 'passed', detail: "at the document's own time (historical)" }
  }
  if (rule === 19 && revocationLists.length > 0)
    return { outcome: 'passed', detail: describeLists(revocationLists) }
  if (rule === 19 && revoked.length === 0) return skipped('no revoked certificates were given')
  if (rule === 21 && mode === 'historical') {
    return {
      outcome: 'passed',
      detail: 'made within the life of its leaf; age not checked (historical)',
    }
  }
  if (rule === 22 && nonce === null) return skipped('no nonce was asked for')
  if (rule === 23 && allowDebug) return skipped('debug mode was allowed')
  if (rule === 24 && measurements === 'any') return skipped('any measurement is accepted')
  return { outcome: 'passed', detail: '' }
}

function describeLists(lists: ResolvedPolicy['revocationLists']): string {
  const oldestMs = Math.min(...lists.map(({ thisUpdateMs }) => thisUpdateMs))
  const made = new Date(oldestMs).toISOString()
  return (
    `${lists.length} lists of issuers in the chain, as of ${made} or later; ` +
    'what others issued was not looked up'
  )
}

function skipped(detail: string): Verdict {
  return { outcome: 'not checked', detail }
}

function describeBindings({ pcr4, leafCommonName, issuerCommonName }: Bindings): string {
  const say = (holds: boolean | null) =>
    holds === null ? 'nothing to compare' : holds ? 'yes' : 'NO'
  return `PCR4 ${say(pcr4)}, leaf ${say(leafCommonName)}, issuer ${say(issuerCommonName)}`
}
