/** A cell: text or a number; null for an empty cell. */
type Cell = string | number | null

/** Gives a table as CSV (RFC 4180): a line of names, then a line for each row. */
export function writeCsv(columns: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [columns, ...rows].map(writeCsvLine).join('')
}

/**
 * Gives one line of CSV, ended by CRLF. A text that a spreadsheet could take for a formula gets an
 * apostrophe before it. So a stranger's name cannot run a formula on the machine that opens the
 * file (OWASP, CSV injection). In many countries a spreadsheet ends cells at `;`, also inside
 * quotes.
 */
export function writeCsvLine(cells: readonly Cell[]): string {
  return `${cells.map(writeCell).join(',')}\r\n`
}

const FORMULA = /^(?=[\t\r\n])|(?<=^|[;\t\r\n])(?=[=+\-@＝＋－＠])/g
const QUOTED = /[",\r\n]/

function writeCell(cell: Cell): string {
  if (cell === null) return ''
  if (typeof cell === 'number') return String(cell)
  const text = cell.replace(FORMULA, "'")
  return QUOTED.test(text) || text !== cell ? `"${text.replaceAll('"', '""')}"` : text
}
