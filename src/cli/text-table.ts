import { printable } from './printable.ts'

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
