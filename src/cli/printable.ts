/** Longest text from outside that is shown on one line, characters. */
export const PRINTED_LENGTH_MAX = 500

/**
 * Gives text from outside in a form that a terminal only shows: control characters and the like are written as escapes,
 * so that a record cannot move the cursor, colour lines or write another outcome over its own.
 */
export function printable(text: string): string {
  const cut = text.length > PRINTED_LENGTH_MAX ? `${text.slice(0, PRINTED_LENGTH_MAX)}…` : text
  return cut.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu, writeEscape)
}

/**
 * Gives a value as JSON over several lines, in which whatever printable escapes is written as
 * JSON's own escapes: the same data for a program, and nothing that a terminal would act on.
 */
export function printableJson(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu, (character) =>
    character === '\n' ? character : escapeUnits(character),
  )
}

function escapeUnits(character: string): string {
  return Array.from({ length: character.length }, (_, at) => {
    const unit = character.charCodeAt(at)
    return `\\u${unit.toString(16).padStart(4, '0')}`
  }).join('')
}

function writeEscape(character: string): string {
  return `\\u{${character.codePointAt(0)?.toString(16)}}`
}

/** Rows of cells as columns, each as wide as its widest cell; ends with a line feed. Cells are shown without control characters. */
export function textTable(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const table = [titles, ...rows.map((row) => row.map(printable))]
  const widths = titles.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0)))
  const lines = table.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '))
  return lines.map((line) => `${line.trimEnd()}\n`).join('')
}

/** Day and time, UTC, of Unix seconds; a dash for none. */
export function timeCell(seconds: number | null): string {
  return seconds === null ? '-' : new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')
}
