import { nameRelease } from '../../../attestation/release/release-list.ts'
import {
  type Doubt,
  type Holder,
  type SubjectReport,
  verdictOf,
} from '../../../attestation/report/judge-record.ts'
import { printable } from '../../../attestation/report/printable.ts'
import { sayAbsence } from '../../../attestation/report/say-absence.ts'
import { failedDetails, formatChecks, hintAtRoot, printableJson, widthOf } from '../printable.ts'
import { printExchange } from './kept-exchange.ts'

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
    records: reports.map((report) => ({ ...report, doubts: report.doubts.map(sayDoubt) })),
  }
  return `${printableJson(report)}\n`
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
  const doubts = new Set(reports.flatMap((report) => report.doubts.map(sayDoubt)))
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

/** A sentence without its full stop. */
function sayDoubt(doubt: Doubt): string {
  switch (doubt.kind) {
    case 'not in log':
      return 'an answer has no log, and nothing else binds what its receipt says of provider, outcome and times'
    case 'content missing': {
      const options = doubt.parts.map((part) => (part === 'request' ? '--request' : '--answer'))
      return `${sayAbsence(doubt.stated)}: give it with ${options.join(' and ')}`
    }
    case 'cut':
      return `an answer was cut (${doubt.outcome}), and its end is not shown: --allow-outcome ${doubt.outcome} takes it as it is`
  }
}
