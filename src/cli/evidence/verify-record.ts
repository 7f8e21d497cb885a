import { decodeBase64, encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { completeRecord, type KeptExchange } from '../../../attestation/compare-exchange.ts'
import type { Judgement } from '../../../attestation/evidence/verdict.ts'
import { reasonOf } from '../../../attestation/finding.ts'
import { isJsonObject, type Json } from '../../../attestation/json/value.ts'
import { decodeAttestationPayload } from '../../../attestation/nitro/document.ts'
import type { AttestationFacts } from '../../../attestation/nitro/facts.ts'
import {
  type AttestationPolicy,
  FUTURE_SKEW_MS_DEFAULT,
} from '../../../attestation/nitro/policy.ts'
import {
  type AttestationVerifier,
  verifyAttestation,
} from '../../../attestation/nitro/verify-attestation.ts'
import { OUTCOMES, type Receipt } from '../../../attestation/receipt.ts'
import { configurationOf } from '../../../attestation/release/release.ts'
import {
  nameRelease,
  type ReleaseName,
  releaseName,
} from '../../../attestation/release/release-list.ts'
import { type RecordReport, verifyRecord } from '../../../attestation/verify-record.ts'
import type { Outcome } from '../options.ts'
import {
  type Check,
  failedDetails,
  formatChecks,
  hintAtRoot,
  isoOf,
  printable,
  printableJson,
  widthOf,
} from '../printable.ts'
import {
  type ComparedExchange,
  compareKept,
  printExchange,
  type ToldExchange,
  tellKept,
} from './kept-exchange.ts'
import { memberAt, type Subject } from './read-evidence.ts'

/** What is demanded of a record beside that it holds. */
type SubjectDemands = {
  /** Null: the attestation document is not looked at. */
  readonly policy: AttestationPolicy | null
  /** How a cut answer may have ended to be taken all the same. */
  readonly allowOutcome?: readonly Outcome[]
  /** Verifies attestation documents. Default: with no revocation lists. */
  readonly verifier?: AttestationVerifier
  /** What the caller kept, to be compared. */
  readonly kept?: KeptExchange
}

/**
 * Checks one record, or one answer with its request, and its attestation document when a policy
 * says what to expect of it. Never throws for what the record says.
 *
 * Does NOT prove that `tx_hash` anchors the record, nor that `id` is what the gateway gave.
 */
export async function verifySubject(
  { record, request, chunks }: Subject,
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
    ...(chunks === undefined ? {} : { chunks }),
    decodeAttestation: decodeAttestationPayload,
  })
  return judgeReport(record, report, {
    attestation: await checkAttestation(record, policy, verifier),
    ...{ allowOutcome, isStored },
    exchange: isStored ? compareKept(record, kept) : tellKept(record, { request, chunks }),
  })
}

/** What was found of one record. */
export type SubjectReport = {
  /** The record's own `hash`, a claim; null when it has none. */
  readonly hash: string | null
  readonly checks: readonly Check[]
  /** Nothing failed. */
  readonly ok: boolean
  /**
   * Why it is no more than consistent, though nothing failed: sentences without their full stops.
   */
  readonly doubts: readonly string[]
  readonly holder: Holder
  /** What was asked and said; of a record that is not in order, nothing. */
  readonly exchange: ToldExchange
}

/**
 * What the attestation document shows of who holds the record's key: which code, by which root;
 * null when nothing. A root that the user gave is worth what the user knows of it: that of a
 * simulated security module proves nothing.
 */
type Holder = {
  readonly code: 'expected' | 'any'
  /** The expected release that the code is of; null when none was expected. */
  readonly release: ReleaseName | null
  readonly root: 'AWS' | 'given'
} | null

/**
 * Gives the report of one record from the library's checks and the one of its attestation document.
 */
function judgeReport(
  record: Json,
  report: RecordReport,
  found: {
    readonly attestation: { readonly check: Check; readonly holder: Holder }
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
    exchange: ok ? exchange.told : { asked: null, said: null },
    doubts: [
      ...doubtLog(report),
      ...(isStored ? doubtContent(report, exchange) : []),
      ...doubtOutcome(record, allowOutcome),
    ],
    holder: attestation.holder,
  }
}

/** Without a log, whoever passed the answer on could write provider, outcome and times. */
function doubtLog({ checks }: RecordReport): readonly string[] {
  const isInLog = checks.some(
    ({ name, outcome }) => name === 'receipt in log' && outcome !== 'not checked',
  )
  return isInLog
    ? []
    : [
        'an answer has no log, and nothing else binds what its receipt says of provider, outcome and times',
      ]
}

/** The record of an encrypted call has the hashes of what its caller alone kept. */
function doubtContent({ checks }: RecordReport, exchange: ComparedExchange): readonly string[] {
  const isShown = (part: 'request' | 'response', given: 'request given' | 'answer given') =>
    checks.some(({ name, outcome }) => name === `${part} hash` && outcome !== 'not checked') ||
    exchange.checks.some(({ name, outcome }) => name === given && outcome === 'passed')
  const missing = [
    ...(isShown('request', 'request given') ? [] : ['--request']),
    ...(isShown('response', 'answer given') ? [] : ['--answer']),
  ]
  return missing.length === 0
    ? []
    : [
        `content of an encrypted call is with its caller alone: give it with ${missing.join(' and ')}`,
      ]
}

/**
 * A cut answer is no whole one, whoever cut it. A receipt that cannot be read fails a check of its
 * own.
 */
function doubtOutcome(record: Json, allowed: readonly Receipt['outcome'][]): readonly string[] {
  const outcome = memberAt(record, 'receipt', 'outcome')
  const known = OUTCOMES.find((one) => one === outcome)
  if (known === undefined || known === 'complete' || allowed.includes(known)) return []
  return [
    `an answer was cut (${known}), and its end is not shown: --allow-outcome ${known} takes it as it is`,
  ]
}

/** Gives the reports for people: each check, then what it comes to. */
export function printText(reports: readonly SubjectReport[]): string {
  const all = reports.flatMap(({ checks }) => checks)
  const blocks = reports.map(({ hash, checks, exchange }) => {
    const lines = formatChecks(checks, widthOf(all))
    return `record ${printable(hash ?? 'without hash')}\n${lines}${printExchange(exchange)}`
  })
  return `${blocks.join('\n')}\n${conclude(reports)}\n${hintAtRoot(failedDetails(all))}`
}

/** Gives the reports as one JSON object, for programs. */
export function printJson(reports: readonly SubjectReport[]): string {
  const report = {
    ok: reports.every(({ ok }) => ok),
    verdict: verdictOf(reports),
    conclusion: conclude(reports),
    records: reports,
  }
  return `${printableJson(report)}\n`
}

/**
 * What `conclude` says, in the words of a bundle's report. `verified`: nothing failed, who holds
 * the key was established, and nothing else is in doubt.
 */
function verdictOf(reports: readonly SubjectReport[]): Judgement<string>['verdict'] {
  if (reports.some(({ ok }) => !ok)) return 'invalid'
  const isOpen = reports.some(({ holder, doubts }) => holder === null || doubts.length > 0)
  return isOpen ? 'consistent' : 'verified'
}

/** Says what it comes to, and no more than that. */
function conclude(reports: readonly SubjectReport[]): string {
  const count = reports.length === 1 ? 'the record' : `all ${reports.length} records`
  const failed = reports.filter(({ ok }) => !ok).length
  if (failed > 0)
    return reports.length === 1
      ? 'INVALID: a check failed.'
      : `INVALID: checks failed in ${failed} of ${reports.length} records.`
  const holders = reports.map(({ holder }) => holder)
  if (holders.includes(null))
    return (
      `CONSISTENT: nothing failed in ${count}, but who holds the key was not established. ` +
      'Say what you expect of the attestation document with --release, --pcr, or --any-measurement.'
    )
  const doubts = new Set(reports.flatMap((report) => report.doubts))
  if (doubts.size > 0)
    return `CONSISTENT: nothing failed in ${count}, but ${[...doubts].join('; ')}.`
  const root = holders.some((holder) => holder?.root === 'given')
    ? ', if the root you gave is to be trusted'
    : ''
  const code = holders.some((holder) => holder?.code === 'any')
    ? 'any code was accepted, and some enclave held the key'
    : `code of ${nameExpected(holders)} held the key`
  return `VALID: nothing failed in ${count}; ${code}${root}.`
}

/** Of several records, each may be of another release. */
function nameExpected(holders: readonly Holder[]): string {
  const releases = new Set(
    holders.flatMap((holder) => (holder?.release ? [nameRelease(holder.release)] : [])),
  )
  return releases.size === 0 ? 'the expected measurements' : printable([...releases].join(' and '))
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
): Promise<{ readonly check: Check; readonly holder: Holder }> {
  const give = (outcome: Check['outcome'], detail: string, holder: Holder = null) => ({
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
 * is not of it.
 */
function checkConfiguration({ release, userData }: AttestationFacts): void {
  const expected = release && configurationOf(release)
  if (expected === null || (userData !== null && equalBytes(userData, expected))) return
  throw new RangeError(
    `expected the configuration of the release, ${encodeHex(expected)}, got ${userData === null ? 'none' : encodeHex(userData)}`,
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
