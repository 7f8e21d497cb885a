import type { Check } from '../../attestation/finding.ts'
import { printable } from '../../attestation/report/printable.ts'

/** Gives a value as JSON over several lines, and a line feed. */
export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`
}

/**
 * Gives a value as JSON over several lines, in which all characters that printable escapes are
 * written as JSON's own escapes: the same data for a program, and nothing that a terminal would act
 * on.
 */
export function printableJson(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(
    /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu,
    (character) => (character === '\n' ? character : escapeUnits(character)),
  )
}

function escapeUnits(character: string): string {
  return Array.from({ length: character.length }, (_, at) => {
    const unit = character.charCodeAt(at)
    return `\\u${unit.toString(16).padStart(4, '0')}`
  }).join('')
}

/**
 * Rows of cells as columns, each as wide as its widest cell; ends with a line feed. Cells are shown
 * without control characters.
 */
export function textTable(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const table = [titles, ...rows.map((row) => row.map(printable))]
  const widths = titles.map((_, column) =>
    Math.max(...table.map((row) => row[column]?.length ?? 0)),
  )
  const lines = table.map((row) =>
    row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '),
  )
  return lines.map((line) => `${line.trimEnd()}\n`).join('')
}

/** Day and time, UTC, of Unix seconds; a dash for null. */
export function timeCell(seconds: number | null): string {
  return seconds === null
    ? '-'
    : new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')
}

/** Gives a line for each check, its name padded to the longest one's width, or to `width`. */
export function formatChecks(checks: readonly Check<string>[], width = widthOf(checks)): string {
  return checks
    .map(
      ({ name, outcome, detail }) =>
        `  ${MARKS[outcome]}  ${name.padEnd(width)}  ${printable(detail)}\n`,
    )
    .join('')
}

/** Length of the longest name. */
export function widthOf(checks: readonly Check<string>[]): number {
  return Math.max(...checks.map(({ name }) => name.length))
}

const MARKS = {
  passed: 'passed     ',
  failed: 'FAILED     ',
  'not checked': 'not checked',
} as const

/** What the checks that failed say. */
export function failedDetails(checks: readonly Check<string>[]): readonly string[] {
  return checks.filter(({ outcome }) => outcome === 'failed').map(({ detail }) => detail)
}

/**
 * For people: where `npm start` keeps the certificate of the root that its simulated security
 * module uses.
 */
export const ROOT_HINT =
  'A development enclave? Its root is in DATA_DIR/nsm/root.crt.pem (DATA_DIR is .affidavit unless it is set): --root FILE'

/**
 * Gives the hint as a line when one of these details of failed checks names root_untrusted, else
 * nothing. They may hold text from outside, which can at most bring the hint about. Reports for
 * programs go without: they have the code.
 */
export function hintAtRoot(details: readonly string[]): string {
  return details.some((detail) => /(^|: |; )root_untrusted: /.test(detail)) ? `${ROOT_HINT}\n` : ''
}
