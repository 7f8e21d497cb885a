import { printable } from './printable.ts'

/** One line of a report. Not checked is not passed. */
export type Check = {
  readonly name: string
  readonly outcome: 'passed' | 'failed' | 'not checked'
  readonly detail: string
}

/** Gives a line for each check, its name padded to the longest one's width, or to `width`. */
export function formatChecks(checks: readonly Check[], width = widthOf(checks)): string {
  return checks
    .map(({ name, outcome, detail }) => `  ${MARKS[outcome]}  ${name.padEnd(width)}  ${printable(detail)}\n`)
    .join('')
}

/** Length of the longest name. */
export function widthOf(checks: readonly Check[]): number {
  return Math.max(...checks.map(({ name }) => name.length))
}

const MARKS = { passed: 'passed     ', failed: 'FAILED     ', 'not checked': 'not checked' } as const

/** What the checks that failed say. */
export function failedDetails(checks: readonly Check[]): readonly string[] {
  return checks.filter(({ outcome }) => outcome === 'failed').map(({ detail }) => detail)
}

/** For people: where `npm start` keeps the certificate of the root that its simulated security module uses. */
export const ROOT_HINT =
  'A development enclave? Its root is in DATA_DIR/nsm/root.crt.pem (DATA_DIR is .affidavit unless it is set): --root FILE'

/**
 * Gives the hint as a line when one of these details of failed checks tells root_untrusted, else nothing. They may hold
 * text from outside, which can at most bring the hint about. Reports for programs go without: they have the code.
 */
export function hintAtRoot(details: readonly string[]): string {
  return details.some((detail) => /(^|: |; )root_untrusted: /.test(detail)) ? `${ROOT_HINT}\n` : ''
}

/** A time in Unix milliseconds, in words; `otherwise` for one that no date can be. */
export function isoOf(timeMs: number, otherwise = `${timeMs} ms`): string {
  const time = new Date(timeMs)
  return Number.isNaN(time.getTime()) ? otherwise : time.toISOString()
}
