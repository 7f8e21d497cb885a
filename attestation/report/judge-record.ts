import { addressOf } from '../account.ts'
import { decodeBase64, decodeHex, encodeHex, equalBytes } from '../bytes.ts'
import { completeRecord, type KeptExchange, streamOf } from '../compare-exchange.ts'
import { type StatedAbsence, statedAbsence } from '../erasure.ts'
import { NotAcceptedError } from '../errors.ts'
import { registersOf } from '../evidence/document-checks.ts'
import { refusedAs, type Verdict } from '../evidence/verdict.ts'
import { type Check, failedCheck } from '../finding.ts'
import { isJsonObject, type Json, memberAt } from '../json/value.ts'
import { decodeAttestationPayload } from '../nitro/document.ts'
import type { AttestationFacts } from '../nitro/facts.ts'
import { type AttestationPolicy, FUTURE_SKEW_MS_DEFAULT } from '../nitro/policy.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { OUTCOMES, type Receipt } from '../receipt.ts'
import { configurationOf } from '../release/release.ts'
import { nameRelease, type ReleaseName, releaseName } from '../release/release-name.ts'
import { type RecordReport, verifyRecord } from '../verify-record.ts'
import { type ComparedExchange, compareKept, describeKept } from './compare-kept.ts'
import { isoOf } from './printable.ts'
import type { Subject } from './read-evidence.ts'
import { NOTHING_SHOWN, type ShownExchange } from './shown-exchange.ts'

type SubjectDemands = {
  /** If null, the attestation document is not checked. */
  readonly policy: AttestationPolicy | null
  /** Outcomes that are accepted for incomplete answers. */
  readonly allowOutcome: readonly Receipt['outcome'][]
  readonly verifier: AttestationVerifier
  readonly kept: KeptExchange
}

/**
 * Checks one record, or one answer with its request. With a policy for documents, checks the
 * attestation document too. Never throws because of the record. Does NOT prove that `tx_hash`
 * anchors the record, nor that `id` is the gateway's id.
 */
export async function judgeRecord(
  { record, kept: own }: Subject,
  { policy, allowOutcome, verifier, kept }: SubjectDemands,
): Promise<SubjectReport> {
  const isStored = own === undefined
  const completed = isStored && isJsonObject(record) ? completeRecord(record, kept) : record
  const report = verifyRecord(own?.answer.kind === 'whole' ? own.answer.answer : completed, {
    ...(own === undefined ? {} : { request: own.request, ...streamOf(own.answer) }),
    decodeAttestation: decodeAttestationPayload,
  })
  return judgeReport(record, report, {
    attestation: await checkAttestation(record, policy, verifier),
    allowOutcome,
    isStored,
    exchange: isStored ? compareKept(record, kept) : { checks: [], shown: describeKept(own) },
  })
}

export type SubjectReport = {
  /** The unproved `hash` of the record. Null if it is missing or not a text. */
  readonly hash: string | null
  readonly checks: readonly SubjectCheck[]
  readonly ok: boolean
  readonly doubts: readonly Doubt[]
  readonly holder: Holder
  /** Null if a check of the record failed. */
  readonly signed: Signed | null
  /** Empty if a check of the record failed. */
  readonly exchange: ShownExchange
}

type SubjectCheck = Check<string>

/** Why a record is only `incomplete` although no check failed. */
export type Doubt =
  /** An answer without a log: provider, outcome and times in its receipt are not proved. */
  | { readonly kind: 'not in log' }
  /**
   * The record lacks these parts, and the caller did not pass them. `stated`: the gateway's reason,
   * or null for an encrypted call, whose content only the caller has.
   */
  | {
      readonly kind: 'content missing'
      readonly parts: readonly ('request' | 'response')[]
      readonly stated: StatedAbsence | null
    }
  /** The answer was cut, and the policy does not accept this outcome. */
  | { readonly kind: 'cut'; readonly outcome: Receipt['outcome'] }

/**
 * What the attestation document proves about the holder of the record's key. Null if it proves
 * nothing, also because the root belongs to a simulated security module.
 */
type Holder = {
  readonly code: 'expected' | 'any'
  /** The expected release with this code. Null if no release was expected. */
  readonly release: ReleaseName | null
  readonly root: 'AWS' | 'given'
  readonly matchedRegisters: readonly number[]
  readonly isDebugMode: boolean
} | null

export type Signed = {
  readonly notary: string
  /** Unix seconds by the enclave's clock. Null if the time is not proved. */
  readonly finishedAt: number | null
  /** As the receipt states. Only a log proves it. */
  readonly outcome: Receipt['outcome']
  /** The enclave's release, if a release was expected. */
  readonly release: ReleaseName | null
  /** As in BundleFacts. */
  readonly matchedRegisters: readonly number[]
  readonly isDebugMode: boolean
}

function judgeReport(
  record: Json,
  report: RecordReport,
  found: {
    readonly attestation: { readonly check: SubjectCheck; readonly holder: Holder }
    readonly allowOutcome: readonly Receipt['outcome'][]
    readonly isStored: boolean
    readonly exchange: ComparedExchange
  },
): SubjectReport {
  const { attestation, allowOutcome, isStored, exchange } = found
  const hash = memberAt(record, 'hash')
  const checks = [...report.checks, attestation.check, ...exchange.checks]
  const ok = checks.every(({ outcome }) => outcome !== 'failed')
  return {
    hash: typeof hash === 'string' ? hash : null,
    checks,
    ok,
    exchange: ok ? exchange.shown : NOTHING_SHOWN,
    doubts: [
      ...doubtLog(report),
      ...(isStored ? doubtContent(report, { exchange, stated: statedAbsence(record) }) : []),
      ...doubtOutcome(record, allowOutcome),
    ],
    holder: attestation.holder,
    signed: ok ? signedOf(record, attestation.holder, report) : null,
  }
}

/** Returns who signed a record whose checks passed. Only a log proves the times in a receipt. */
function signedOf(record: Json, holder: Holder, report: RecordReport): Signed {
  const finishedAtMs = memberAt(record, 'receipt', 'finished_at')
  return {
    notary: addressOf(decodeHex(String(memberAt(record, 'public_key')))),
    finishedAt: isInLog(report) ? Math.floor(Number(finishedAtMs) / 1000) : null,
    outcome: outcomeOf(record) ?? 'complete',
    release: holder?.release ?? null,
    matchedRegisters: holder?.matchedRegisters ?? [],
    isDebugMode: holder?.isDebugMode ?? false,
  }
}

/** Without a log, anyone could have changed provider, outcome and times. */
function doubtLog(report: RecordReport): readonly Doubt[] {
  return isInLog(report) ? [] : [{ kind: 'not in log' }]
}

/** True if the record has a log proof, valid or not. */
function isInLog({ checks }: RecordReport): boolean {
  return checks.some(({ name, outcome }) => name === 'receipt in log' && outcome !== 'not checked')
}

/** Returns a doubt about parts that neither the record nor the caller's kept exchange has. */
function doubtContent(
  { checks }: RecordReport,
  {
    exchange,
    stated,
  }: { readonly exchange: ComparedExchange; readonly stated: StatedAbsence | null },
): readonly Doubt[] {
  const isShown = (part: 'request' | 'response', given: 'request given' | 'answer given') =>
    checks.some(({ name, outcome }) => name === `${part} hash` && outcome !== 'not checked') ||
    exchange.checks.some(({ name, outcome }) => name === given && outcome === 'passed')
  const parts = [
    ...(isShown('request', 'request given') ? [] : (['request'] as const)),
    ...(isShown('response', 'answer given') ? [] : (['response'] as const)),
  ]
  return parts.length === 0 ? [] : [{ kind: 'content missing', parts, stated }]
}

/** Returns a doubt about an incomplete answer. Another check refuses unreadable receipts. */
function doubtOutcome(record: Json, allowed: readonly Receipt['outcome'][]): readonly Doubt[] {
  const outcome = outcomeOf(record)
  if (outcome === null || outcome === 'complete' || allowed.includes(outcome)) return []
  return [{ kind: 'cut', outcome }]
}

/** Null for an unreadable receipt. */
function outcomeOf(record: Json): Receipt['outcome'] | null {
  const outcome = memberAt(record, 'receipt', 'outcome')
  return OUTCOMES.find((one) => one === outcome) ?? null
}

/**
 * The verdict on records. It is never `verified`, because records lack the boot configuration and
 * the anchor.
 */
export function verdictOf(reports: readonly SubjectReport[]): Verdict {
  return refusedAs(reports.flatMap(({ checks }) => checks)) ?? 'incomplete'
}

/**
 * Checks a record's attestation document at the document's own time, and that the record was made
 * while the document was valid. Not checked without a policy. verifyRecord checks that the document
 * has the record's key. Does NOT prove when the record was made, because `finished_at` is by the
 * enclave's clock. The anchor proves the latest possible time.
 */
async function checkAttestation(
  record: Json,
  policy: AttestationPolicy | null,
  verifier: AttestationVerifier,
): Promise<{ readonly check: SubjectCheck; readonly holder: Holder }> {
  const give = (outcome: SubjectCheck['outcome'], detail: string, holder: Holder = null) => ({
    check: { name: 'attestation', outcome, detail },
    holder,
  })
  if (policy === null) return give('not checked', 'no expected measurements given')
  try {
    const atOwnTime = { ...policy, mode: 'historical' } as const
    const facts = await verifier.verify(documentOf(record), atOwnTime, new Date(0))
    checkLifetime(record, facts)
    checkConfiguration(facts)
    return give('passed', describe(facts, policy), {
      code: policy.measurements === 'any' ? 'any' : 'expected',
      release: facts.release && releaseName(facts.release),
      root: policy.roots === undefined ? 'AWS' : 'given',
      matchedRegisters: registersOf(policy.measurements, facts.matchedSet),
      isDebugMode: facts.isDebugMode,
    })
  } catch (fault) {
    return { check: failedCheck('attestation', fault), holder: null }
  }
}

function documentOf(record: Json): Uint8Array {
  const text = memberAt(record, 'attestation')
  if (typeof text !== 'string') throw new TypeError('expected attestation to be a string')
  return decodeBase64(text)
}

function checkLifetime(record: Json, facts: AttestationFacts): void {
  const finishedAt = memberAt(record, 'receipt', 'finished_at')
  if (typeof finishedAt !== 'number') throw new TypeError('expected a receipt with finished_at')
  const endMs = Math.min(...facts.certificates.map(({ notAfterMs }) => notAfterMs))
  if (finishedAt < facts.timestampMs - FUTURE_SKEW_MS_DEFAULT || finishedAt > endMs)
    throw new RangeError(
      `expected the completion between ${iso(facts.timestampMs)} and ${iso(endMs)}, ` +
        `when the document was valid, but it finished ${iso(finishedAt)}`,
    )
}

/** Throws if the document has another boot configuration than its release. */
function checkConfiguration({ release, userData }: AttestationFacts): void {
  const expected = release && configurationOf(release)
  if (expected === null || (userData !== null && equalBytes(userData, expected))) return
  const got = userData === null ? 'no configuration' : encodeHex(userData)
  throw new NotAcceptedError(
    'unexpected_configuration',
    `expected the configuration of the release, ${encodeHex(expected)}, got ${got}`,
  )
}

function describe(
  { moduleId, timestampMs, measurements, release, isDebugMode }: AttestationFacts,
  policy: AttestationPolicy,
): string {
  const code =
    policy.measurements === 'any'
      ? `any code was accepted; PCR0 is ${encodeHex(measurements.get(0) ?? new Uint8Array())}`
      : release
        ? `the measurements are those of ${nameRelease(release)}`
        : 'the measurements are the expected ones'
  return `${moduleId} at ${iso(timestampMs)}: ${code}${isDebugMode ? '; IN DEBUG MODE' : ''}`
}

function iso(timeMs: number): string {
  return isoOf(timeMs, String(timeMs))
}
