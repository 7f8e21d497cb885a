import { isJsonObject, type Json, memberOf } from '../../attestation/json/value.ts'
import type { RecordReport } from '../../attestation/verify-record.ts'
import { printable } from './printable.ts'

/** One line of a report. Not checked is not passed. */
export type Check = {
  readonly name: string
  readonly outcome: 'passed' | 'failed' | 'not checked'
  readonly detail: string
}

/** What was found of one record. */
export type SubjectReport = {
  /** The record's own `hash`, a claim; null when it has none. */
  readonly hash: string | null
  readonly checks: readonly Check[]
  /** Nothing failed. */
  readonly ok: boolean
  /** Whether the attestation document was verified, so that it is known which code holds the key. */
  readonly isHolderKnown: boolean
}

/** The check that tells whether the holder of the key is known. */
export const ATTESTATION_CHECK = 'attestation'

/** Gives the report of one record from the library's checks and further ones. */
export function judgeReport(record: Json, report: RecordReport, more: readonly Check[]): SubjectReport {
  const hash = isJsonObject(record) ? memberOf(record, 'hash') : undefined
  const checks = [...report.checks, ...more]
  return {
    hash: typeof hash === 'string' ? hash : null,
    checks,
    ok: report.ok && checks.every(({ outcome }) => outcome !== 'failed'),
    isHolderKnown: checks.some(({ name, outcome }) => name === ATTESTATION_CHECK && outcome === 'passed'),
  }
}

/** Gives the reports for people: each check, then what it comes to. */
export function printText(reports: readonly SubjectReport[]): string {
  const width = Math.max(...reports.flatMap(({ checks }) => checks.map(({ name }) => name.length)))
  const blocks = reports.map(({ hash, checks }) => {
    const lines = checks.map(
      ({ name, outcome, detail }) => `  ${MARKS[outcome]}  ${name.padEnd(width)}  ${printable(detail)}\n`,
    )
    return `record ${printable(hash ?? 'without hash')}\n${lines.join('')}`
  })
  return `${blocks.join('\n')}\n${conclude(reports)}\n`
}

/** Gives the reports as one JSON object, for programs. */
export function printJson(reports: readonly SubjectReport[]): string {
  const records = reports.map(({ isHolderKnown, ...report }) => ({
    ...report,
    is_holder_known: isHolderKnown,
  }))
  return `${JSON.stringify({ ok: reports.every(({ ok }) => ok), conclusion: conclude(reports), records }, null, 2)}\n`
}

const MARKS = { passed: 'passed     ', failed: 'FAILED     ', 'not checked': 'not checked' } as const

function conclude(reports: readonly SubjectReport[]): string {
  const failed = reports.filter(({ ok }) => !ok).length
  const all = reports.length === 1 ? 'the record' : `all ${reports.length} records`
  if (failed > 0)
    return reports.length === 1 ? 'INVALID: a check failed.' : `INVALID: ${failed} of ${all.slice(4)} failed.`
  if (reports.every(({ isHolderKnown }) => isHolderKnown))
    return `VALID: ${all} verified; code of the expected measurements held the key.`
  return (
    `CONSISTENT: nothing failed in ${all}, but who holds the key was not established: the attestation document ` +
    'was not verified. Give the measurements you expect with --pcr, or --any-measurement.'
  )
}
