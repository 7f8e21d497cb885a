import type { Check } from '#attestation/finding.ts'
import { printable } from '#attestation/report/printable.ts'

/** Returns JSON on several lines, with a line feed at the end. */
export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`
}

/**
 * JSON escapes replace the characters that `printable` escapes, so a terminal does not execute
 * them. The data stays the same.
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

/** Returns a table that ends with a line feed. Control characters in `rows` are escaped. */
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

/** Day and time in UTC. A dash for null. */
export function timeCell(seconds: number | null): string {
  return seconds === null
    ? '-'
    : new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')
}

/** Names are padded to the longest name, or to `width`. */
export function formatChecks(checks: readonly Check<string>[], width = widthOf(checks)): string {
  return checks
    .map(
      ({ name, outcome, detail }) =>
        `  ${MARKS[outcome]}  ${name.padEnd(width)}  ${printable(detail)}\n`,
    )
    .join('')
}

export function widthOf(checks: readonly Check<string>[]): number {
  return Math.max(...checks.map(({ name }) => name.length))
}

const MARKS = {
  passed: 'passed     ',
  failed: 'FAILED     ',
  'not checked': 'not checked',
} as const

export function failedDetails(checks: readonly Check<string>[]): readonly string[] {
  return checks.filter(({ outcome }) => outcome === 'failed').map(({ detail }) => detail)
}

/** Where `npm start` stores the root certificate of its simulated security module. */
export const ROOT_HINT =
  'A development enclave? Its root is in DATA_DIR/nsm/root.crt.pem (DATA_DIR is .affidavit ' +
  'unless it is set): --root FILE'

/**
 * Returns ROOT_HINT if a detail contains root_untrusted, otherwise an empty text. Details may
 * contain text from outside, which can at most cause this hint. JSON reports contain only the code.
 */
export function hintAtRoot(details: readonly string[]): string {
  return details.some((detail) => /(^|: |; )root_untrusted: /.test(detail)) ? `${ROOT_HINT}\n` : ''
}
