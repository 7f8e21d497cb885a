import { sha384 } from '@noble/hashes/sha2.js'
import { concatBytes, encodeUtf8, equalBytes } from '../bytes.ts'
import type { Release } from '../release/release.ts'
import { nameRelease } from '../release/release-name.ts'
import {
  type AttestationError,
  type AttestationStage,
  RULES,
  type RuleNumber,
} from './attestation-error.ts'
import type { Certificate } from './certificate.ts'
import { isDebugMode, type MatchedCode } from './checks.ts'
import { type AttestationDocument, PCR_BYTES } from './document.ts'
import type { ResolvedPolicy } from './policy.ts'

/**
 * One certificate of the verified chain. Names are one-line texts; times are Unix milliseconds,
 * inclusive.
 */
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
 * What a document proves under the policy it was verified with. The README of this folder says in
 * plain words what follows from it and what does not.
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
  /**
   * Index of the expected set that matched; null when any measurement was accepted, or a release.
   */
  readonly matchedSet: number | null
  /**
   * The release of the policy that matched, accepted at timestampMs; null when none was asked for,
   * or a set matched.
   */
  readonly release: Release | null
  /** What the enclave's code put there; null when absent. */
  readonly publicKey: Uint8Array | null
  readonly userData: Uint8Array | null
  readonly nonce: Uint8Array | null
  /**
   * True only where the policy allowed it: then nothing is known of the code, and the host can read
   * its memory.
   */
  readonly isDebugMode: boolean
  /** Root first, leaf last. */
  readonly certificates: readonly CertificateFacts[]
  readonly bindings: Bindings
  /** Keys of the payload beyond AWS's format; their values were not looked at. */
  readonly unknownKeys: readonly string[]
  readonly rules: readonly RuleOutcome[]
}

/** What was established on the way, to be put together. */
type Established = {
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

/**
 * Whether the parts of a document name the same instance (rule 25). Reported, not demanded: AWS
 * does not document them, so nothing is refused for them. Each is null where there is nothing to
 * compare.
 */
type Bindings = {
  /** EC2 instance id, the part of module_id before `-enc`; null when module_id has another form. */
  readonly instanceId: string | null
  /** PCR4 = SHA-384 of 48 zero bytes and the instance id. */
  readonly pcr4: boolean | null
  /** The leaf's common name begins with module_id. */
  readonly leafCommonName: boolean | null
  /** The issuer's common name begins with the instance id. */
  readonly issuerCommonName: boolean | null
}

/** Gives what PCR4 and the common names of `leaf` and its issuer say about the instance. */
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

/** The value that PCR4 has on the instance `instanceId`. */
function instanceMeasurement(instanceId: string): Uint8Array {
  return sha384(concatBytes(new Uint8Array(PCR_BYTES), encodeUtf8(instanceId)))
}

/** The next character must end the id, or i-1 would pass for i-12. */
function beginsWith(name: string | null, prefix: string | null): boolean | null {
  if (name === null || prefix === null) return null
  return name === prefix || (name.startsWith(prefix) && /^[.-]/.test(name.slice(prefix.length)))
}

/**
 * What became of one rule. `not checked` is never a pass: the rule was not asked for, or the
 * document was refused before. `reported` is for what is shown and never refused.
 */
export type RuleOutcome = {
  readonly rule: RuleNumber
  readonly title: string
  readonly outcome: 'passed' | 'failed' | 'not checked' | 'reported'
  /** Why, or with which result; may be empty. */
  readonly detail: string
}

/**
 * Gives the outcomes for a document that was accepted under `policy`, one for each rule, in order.
 */
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
 * Gives the outcomes for a document that was refused: rules of earlier stages held, the broken one
 * failed, and of the others of its stage and of later stages nothing is claimed; but policy is
 * checked in the order of its rules.
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
  // Strict CBOR is also demanded of the payload, which the parse stage reads.
  if (rule === 6 && error.stage === 'parse') return false
  return STAGES.indexOf(stage) < STAGES.indexOf(error.stage)
}

const STAGES: readonly AttestationStage[] = ['decode', 'parse', 'chain', 'signature', 'policy']

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

/** Certificates of other issuers were not looked up: there are no lists of instances and leaves. */
function describeLists(lists: ResolvedPolicy['revocationLists']): string {
  const oldestMs = Math.min(...lists.map(({ thisUpdateMs }) => thisUpdateMs))
  const made = new Date(oldestMs).toISOString()
  return `${lists.length} lists of issuers in the chain, as of ${made} or later; what others issued was not looked up`
}

function skipped(detail: string): Verdict {
  return { outcome: 'not checked', detail }
}

function describeBindings({ pcr4, leafCommonName, issuerCommonName }: Bindings): string {
  const say = (holds: boolean | null) =>
    holds === null ? 'nothing to compare' : holds ? 'yes' : 'NO'
  return `PCR4 ${say(pcr4)}, leaf ${say(leafCommonName)}, issuer ${say(issuerCommonName)}`
}
