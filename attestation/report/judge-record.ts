import { addressOf } from '../account.ts'
import { decodeBase64, decodeHex, encodeHex, equalBytes } from '../bytes.ts'
import { completeRecord, type KeptExchange } from '../compare-exchange.ts'
import { type StatedAbsence, statedAbsence } from '../erasure.ts'
import type { Judgement } from '../evidence/verdict.ts'
import { type Check, reasonOf } from '../finding.ts'
import { isJsonObject, type Json, memberAt } from '../json/value.ts'
import { decodeAttestationPayload } from '../nitro/document.ts'
import type { AttestationFacts } from '../nitro/facts.ts'
import { type AttestationPolicy, FUTURE_SKEW_MS_DEFAULT } from '../nitro/policy.ts'
import { type AttestationVerifier, verifyAttestation } from '../nitro/verify-attestation.ts'
import { OUTCOMES, type Receipt } from '../receipt.ts'
import { configurationOf } from '../release/release.ts'
import { nameRelease, type ReleaseName, releaseName } from '../release/release-name.ts'
import { type RecordReport, verifyRecord } from '../verify-record.ts'
import { type ComparedExchange, compareKept, describeKept } from './describe-exchange.ts'
import { isoOf } from './printable.ts'
import type { Subject } from './read-evidence.ts'
import { NOTHING_SHOWN, type ShownExchange } from './shown-exchange.ts'

/** What is demanded of a record beside that it holds. */
type SubjectDemands = {
  /** Null: the attestation document is not looked at. */
  readonly policy: AttestationPolicy | null
  /** How a cut answer may have ended and still be accepted. */
  readonly allowOutcome?: readonly Receipt['outcome'][]
  /** Verifies attestation documents. Default: with no revocation lists. */
  readonly verifier?: AttestationVerifier
  /** What the caller kept, to be compared. */
  readonly kept?: KeptExchange
}

/**
 * Checks one record, or one answer with its request, and its attestation document when a policy
 * says what to expect of documents. Never throws for what the record says.
 *
 * Does NOT prove that `tx_hash` anchors the record, nor that `id` is what the gateway gave.
 */
export async function judgeRecord(
  { record, request, chunks, idempotent = false }: Subject,
  {
    policy,
    allowOutcome = [],
    verifier = { verify: verifyAttestation },
    kept = {},
  }: SubjectDemands,
): Promise<SubjectReport> {
  const isStored = request === undefined
  const completed = isStored && isJsonObject(record) ? completeRecord(record, kept) : record
  const report = verifyRecord(completed, {
    ...(request === undefined ? {} : { request }),
    ...(chunks === undefined ? {} : { chunks, idempotent }),
    decodeAttestation: decodeAttestationPayload,
  })
  return judgeReport(record, report, {
    attestation: await checkAttestation(record, policy, verifier),
    allowOutcome,
    isStored,
    exchange: isStored ? compareKept(record, kept) : describeKept(record, { request, chunks }),
  })
}

/** What was found of one record. */
export type SubjectReport = {
  /** The record's own `hash`, a claim; null when it has no such text. */
  readonly hash: string | null
  readonly checks: readonly SubjectCheck[]
  /** Nothing failed. */
  readonly ok: boolean
  /** Why it is no more than consistent, though nothing failed. */
  readonly doubts: readonly Doubt[]
  readonly holder: Holder
  /** Who signed, and when; null of a record that is not in order. */
  readonly signed: Signed | null
  /** What was asked and said; of a record that is not in order, nothing. */
  readonly exchange: ShownExchange
}

/** One check of a record, of its attestation document, or of what its caller kept. */
export type SubjectCheck = Check<string>

/** Why a record is no more than consistent, though nothing failed. */
export type Doubt =
  /** An answer without a log: nothing binds its receipt's provider, outcome and times. */
  | { readonly kind: 'not in log' }
  /**
   * These parts are not in the record, and were not given beside it. `stated`: why, by what the
   * gateway says; null of an encrypted call, whose content is with its caller alone.
   */
  | {
      readonly kind: 'content missing'
      readonly parts: readonly ('request' | 'response')[]
      readonly stated: StatedAbsence | null
    }
  /** The answer was cut, which was not allowed. */
  | { readonly kind: 'cut'; readonly outcome: Receipt['outcome'] }

/**
 * What the attestation document shows about the holder of the record's key: which code, by which
 * root; null when it shows nothing. A root that the user gave is worth what the user knows about
 * it: the root of a simulated security module proves nothing.
 */
export type Holder = {
  readonly code: 'expected' | 'any'
  /** The expected release that the code is of; null when none was expected. */
  readonly release: ReleaseName | null
  readonly root: 'AWS' | 'given'
} | null

/** Who signed an answer, and when. */
export type Signed = {
  readonly notary: string
  /** Unix seconds by the enclave's clock; null where nothing binds them. */
  readonly finishedAt: number | null
  /** The release that the enclave runs, where one was expected. */
  readonly release: ReleaseName | null
}

/**
 * Gives the report of one record from the library's checks and the one of its attestation document.
 */
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

/** By a record whose checks passed; the times of its receipt are bound by the log alone. */
function signedOf(record: Json, holder: Holder, report: RecordReport): Signed {
  const finishedAtMs = memberAt(record, 'receipt', 'finished_at')
  return {
    notary: addressOf(decodeHex(String(memberAt(record, 'public_key')))),
    finishedAt: isInLog(report) ? Math.floor(Number(finishedAtMs) / 1000) : null,
    release: holder?.release ?? null,
  }
}

/** Without a log, a party that passed the answer on could write provider, outcome and times. */
function doubtLog(report: RecordReport): readonly Doubt[] {
  return isInLog(report) ? [] : [{ kind: 'not in log' }]
}

/** Whether there is a log; of a record that is in order, whether its receipt is in it. */
function isInLog({ checks }: RecordReport): boolean {
  return checks.some(({ name, outcome }) => name === 'receipt in log' && outcome !== 'not checked')
}

/** A record without its content has the hashes of what others may have kept. */
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

/**
 * A cut answer is not whole, no matter who cut it. A receipt that cannot be read fails a check of
 * its own.
 */
function doubtOutcome(record: Json, allowed: readonly Receipt['outcome'][]): readonly Doubt[] {
  const outcome = memberAt(record, 'receipt', 'outcome')
  const known = OUTCOMES.find((one) => one === outcome)
  if (known === undefined || known === 'complete' || allowed.includes(known)) return []
  return [{ kind: 'cut', outcome: known }]
}

/**
 * What records come to, in the words of a bundle's report: never `verified`, since they hold
 * neither the boot configuration nor the anchor.
 */
export function verdictOf(reports: readonly SubjectReport[]): Judgement<string>['verdict'] {
  return reports.some(({ ok }) => !ok) ? 'invalid' : 'consistent'
}

/**
 * Checks a record's attestation document at the document's own time, and that the record was made
 * during the life of the document. Without a policy the check is not made. That the document
 * carries the record's key is a check of verifyRecord.
 *
 * Does NOT prove when the record was made: both times are the enclave's side's; the anchor shows it
 * was not later.
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
    })
  } catch (fault) {
    return give('failed', reasonOf(fault))
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
      `expected the completion between ${iso(facts.timestampMs)} and ${iso(endMs)}, when the document was valid, ` +
        `but it finished ${iso(finishedAt)}`,
    )
}

/**
 * The image of a release has its configuration in it: a document of that image that names another
 * configuration is not of the release.
 */
function checkConfiguration({ release, userData }: AttestationFacts): void {
  const expected = release && configurationOf(release)
  if (expected === null || (userData !== null && equalBytes(userData, expected))) return
  throw new RangeError(
    `expected the configuration of the release, ${encodeHex(expected)}, got ${userData === null ? 'no configuration' : encodeHex(userData)}`,
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
