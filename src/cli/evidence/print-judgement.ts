import { styleText } from 'node:util'
import { encodeHex } from '#attestation/bytes.ts'
import type { BundleFacts, BundleReport } from '#attestation/evidence/bundle-checks.ts'
import type { Check } from '#attestation/finding.ts'
import { nameRelease, releaseName } from '#attestation/release/release-name.ts'
import { type Conclusion, conclude, saySentence } from '#attestation/report/conclude.ts'
import { describeProvider, PROVIDER_NOT_SHOWN } from '#attestation/report/describe-provider.ts'
import { hasKnownCode } from '#attestation/report/enclave-code.ts'
import type { BundleJudgement } from '#attestation/report/judge-bundle.ts'
import type { EvidenceFindings, EvidenceJudgement } from '#attestation/report/judge-evidence.ts'
import type { Doubt, SubjectReport } from '#attestation/report/judge-record.ts'
import { isoOf, printable } from '#attestation/report/printable.ts'
import { beginSentence, describeErasure, sayAbsence } from '#attestation/report/say-absence.ts'
import { adviseOnSource, saySource } from '#attestation/report/say-source.ts'
import type { SessionReport } from '#attestation/session/verify-session.ts'
import { failedDetails, formatChecks, hintAtRoot, printableJson, widthOf } from '../printable.ts'
import { providerFactsJson } from '../provider-report.ts'
import { printExchange } from './kept-exchange.ts'
import { printSession, sessionReportJson } from './print-session.ts'

/** `source`: the name of a file, a URL or a hash. */
export function printText(judged: EvidenceJudgement, source: string): string {
  const conclusion = conclude(judged)
  const { verdict, headline, caution } = conclusion
  const colour = caution === null ? COLOURS[verdict] : 'yellow'
  const failed = checksOf(judged).filter(({ outcome }) => outcome === 'failed')
  const blocks = [
    `${styleText(colour, headline, { stream: process.stdout })}\n${saySentence(conclusion)}\n`,
    failed.length === 0 ? '' : formatChecks(failed),
    hintAtRoot(failedDetails(failed)),
    verdict === 'incomplete'
      ? adviseOn(judged, source)
          .map((line) => `- ${line}\n`)
          .join('')
      : '',
    ...printReport(judged),
  ]
  return blocks.filter((block) => block !== '').join('\n')
}

/** `isOk`: the verdict meets the caller's requirements. */
export function printJson(judged: EvidenceJudgement, isOk: boolean): string {
  const conclusion = conclude(judged)
  const { verdict, headline } = conclusion
  const sentence = saySentence(conclusion)
  const report = { ok: isOk, verdict, conclusion: headline, sentence, ...reportJson(judged) }
  return `${printableJson(report)}\n`
}

function reportJson(judged: EvidenceJudgement): object {
  switch (judged.kind) {
    case 'bundle':
      return { bundle: bundleJson(judged) }
    case 'records':
      return { records: judged.records.map(recordJson) }
    case 'session':
      return { session: sessionReportJson(judged) }
  }
}

function printReport(judged: EvidenceJudgement): readonly string[] {
  switch (judged.kind) {
    case 'bundle':
      return printBundle(judged)
    case 'records':
      return printRecords(judged.records)
    case 'session':
      return printSession(judged)
  }
}

const COLOURS = {
  verified: 'green',
  incomplete: 'yellow',
  not_accepted: 'yellow',
  invalid: 'red',
} as const satisfies Record<Conclusion['verdict'], string>

function checksOf(judged: EvidenceFindings): readonly Check<string>[] {
  switch (judged.kind) {
    case 'bundle':
      return [...judged.report.checks, ...judged.comparison]
    case 'records':
      return judged.records.flatMap(({ checks }) => checks)
    case 'session':
      return [...judged.checks, ...failedOfCalls(judged)]
  }
}

const FAILED_CHECKS_MAX = 10

function failedOfCalls({ calls }: SessionReport): readonly Check<string>[] {
  const failed = calls.flatMap(({ report }) =>
    report.checks.filter(({ outcome }) => outcome === 'failed'),
  )
  const different = new Map(failed.map((check) => [`${check.name} ${check.detail}`, check]))
  return [...different.values()].slice(0, FAILED_CHECKS_MAX)
}

function printBundle(judged: BundleJudgement): readonly string[] {
  return [
    printExchange(judged.exchange),
    printExchange(judged.differing, ', as you kept it'),
    describeFacts(judged.report),
    describeEvidence(judged.report),
    `checks of the evidence\n${formatChecks(checksOf({ kind: 'bundle', ...judged }))}`,
  ]
}

function printRecords(records: readonly SubjectReport[]): readonly string[] {
  const width = widthOf(records.flatMap(({ checks }) => checks))
  return records.flatMap(({ hash, checks, exchange }) => [
    printExchange(exchange),
    `checks of the record ${printable(hash ?? 'without hash')}\n${formatChecks(checks, width)}`,
  ])
}

function adviseOn(judged: EvidenceJudgement, source: string): readonly string[] {
  if (judged.kind === 'records') return adviseOnRecords(judged.records)
  if (judged.kind === 'session') return adviseOnSession(judged, source)
  const { facts, redacted, open } = judged.report
  const isExpected = !open.includes('measurements') && !open.includes('expected configuration')
  const sourceAdvice = adviseOnSource(judged)
  const outcome = open.includes('outcome') && facts !== null ? facts.outcome : null
  const isLeftOut = open.includes('request hash') || open.includes('response hash')
  return [
    ...(isExpected ? [] : [EXPECT_ADVICE]),
    ...(sourceAdvice === null ? [] : [sourceAdvice]),
    ...(open.includes('block header') ? [sayPending(source)] : []),
    ...(isLeftOut ? [`This evidence has no ${redacted.join(' and no ')}: ${KEPT_ADVICE}`] : []),
    ...(outcome === null ? [] : [sayCut(outcome)]),
  ]
}

function sayPending(source: string): string {
  return `It has no block yet. Add it while the gateway runs: affidavit complete ${printable(source)} --url URL`
}

function adviseOnSession({ calls }: SessionReport, source: string): readonly string[] {
  const open = new Set(calls.flatMap(({ report }) => report.open))
  const isExpected = !open.has('measurements') && !open.has('expected configuration')
  const outcomes = calls.flatMap(({ report: { facts, open } }) =>
    open.includes('outcome') && facts !== null ? [facts.outcome] : [],
  )
  return [
    ...(isExpected ? [] : [EXPECT_ADVICE]),
    ...(open.has('block header') ? [sayPending(source)] : []),
    ...new Set(outcomes.map(sayCut)),
  ]
}

function adviseOnRecords(records: readonly SubjectReport[]): readonly string[] {
  const isKnown = records.every(({ holder }) => holder !== null && holder.code !== 'any')
  return [
    ...(isKnown ? [] : [EXPECT_ADVICE]),
    ...new Set(records.flatMap(({ doubts }) => doubts.map(adviseOnDoubt))),
    'A record has neither the boot configuration nor the anchor. Check the evidence of the ' +
      'completion: affidavit verify HASH --url URL',
  ]
}

const EXPECT_ADVICE =
  'Say which enclaves you accept: --policy FILE, with the file from your vendor. (Or --release, ' +
  '--pcr, --configuration.)'
const KEPT_ADVICE = 'give what you kept with --request and --answer.'

function adviseOnDoubt(doubt: Doubt): string {
  switch (doubt.kind) {
    case 'not in log':
      return 'This answer has no log: only its record shows provider, outcome and times.'
    case 'content missing': {
      const options = doubt.parts.map((part) => (part === 'request' ? '--request' : '--answer'))
      return `${beginSentence(sayAbsence(doubt.stated))}: give it with ${options.join(' and ')}.`
    }
    case 'cut':
      return sayCut(doubt.outcome)
  }
}

function sayCut(outcome: string): string {
  return (
    `The answer was cut (${outcome}), and its end is not shown. To accept it like this: ` +
    `--allow-outcome ${outcome}`
  )
}

function describeFacts(report: BundleReport): string {
  const { facts, redacted, erased, source } = report
  if (facts === null) return ''
  const { anchoredIn } = facts
  const cut = facts.outcome === 'complete' ? '' : ': the answer was cut, and its end is not shown'
  const block =
    anchoredIn === null ? 'not shown: the block was not looked up' : describeBlock(anchoredIn)
  return [
    `completion     ${printable(facts.hash)}`,
    `leaf           ${facts.index} of the log of ${facts.notary}`,
    `provider       ${printable(facts.provider.name)} at ${printable(facts.provider.origin)}`,
    `model          ${describeModel(facts)}`,
    `outcome        ${facts.outcome}${cut}`,
    `finished       ${isoOf(facts.finishedAt * 1000, `${facts.finishedAt} s`)}, by the enclave's clock`,
    `not after      ${block}`,
    `code           ${describeCode(facts)}`,
    `configuration  ${encodeHex(facts.configuration)}`,
    ...(redacted.length > 0 ? [`left out       ${redacted.join(' and ')}`] : []),
    ...(erased === null ? [] : [`erased         ${describeErasure(erased)}; the gateway's word`]),
    ...(source === null ? [] : [`says it is from  ${saySource(source)}: a hint, not checked`]),
    '',
  ].join('\n')
}

/** Empty without evidence. */
function describeEvidence({ facts, providerChecks }: BundleReport): string {
  if (providerChecks.length === 0) return ''
  const evidence = facts?.providerEvidence ?? null
  const heading = evidence?.isAccepted
    ? "the provider's machine, by evidence that passes your policy"
    : "by the provider's evidence, not judged under a policy"
  const lines = evidence === null ? [] : describeProvider(evidence, evidence.weights)
  return [
    ...(evidence === null ? [] : [heading]),
    ...lines.map(([name, text]) => `${name.padEnd(13)}  ${printable(text)}`),
    ...(evidence === null ? [] : PROVIDER_NOT_SHOWN.map((line) => `not shown      ${line}`)),
    `checks of the provider's evidence\n${formatChecks(providerChecks)}`,
  ].join('\n')
}

function describeModel({ model }: BundleFacts): string {
  const returned =
    model.returned === null ? 'the answer names none' : `answered by ${printable(model.returned)}`
  return `${printable(model.requested)}, ${returned}`
}

function describeCode(facts: BundleFacts): string {
  const { release, measurements, matchedRegisters, isDebugMode } = facts
  if (release !== null) return printable(nameRelease(release))
  if (hasKnownCode(facts)) return 'of the expected measurements'
  const only =
    matchedRegisters.length === 0 ? '' : ` (as expected: PCR${matchedRegisters.join(', PCR')})`
  const debug = isDebugMode ? ', in debug mode' : ''
  const pcr0 = encodeHex(measurements.get(0) ?? new Uint8Array())
  return `not known to be acceptable${debug}: PCR0 ${pcr0}${only}`
}

function describeBlock({ timestamp, number }: NonNullable<BundleFacts['anchoredIn']>): string {
  return `${isoOf(timestamp * 1000, `${timestamp} s`)}, block ${number} of the chain`
}

function recordJson(record: SubjectReport): object {
  return { ...record, doubts: record.doubts.map(adviseOnDoubt) }
}

/** Bytes are written as hex. Times are Unix seconds. */
function bundleJson({ verdict, report, comparison, exchange }: BundleJudgement): object {
  const { facts, checks, open, redacted, erased, source, providerChecks } = report
  return {
    verdict,
    exchange: { checks: comparison, ...exchange },
    checks,
    open,
    redacted,
    erased,
    source,
    provider_checks: providerChecks,
    facts: facts && {
      ...facts,
      providerEvidence: facts.providerEvidence && providerFactsJson(facts.providerEvidence),
      release: facts.release && releaseName(facts.release),
      configuration: encodeHex(facts.configuration),
      measurements: Object.fromEntries(
        [...facts.measurements].map(([index, pcr]) => [index, encodeHex(pcr)]),
      ),
    },
  }
}
