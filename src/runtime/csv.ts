/** A cell: text or a number. Null for an empty cell. */
type Cell = string | number | null

/**
 * Returns a table as CSV (RFC 4180): a line with the names of the columns, then one line per row.
 */
export function writeCsv(columns: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [columns, ...rows].map(writeCsvLine).join('')
}

/**
 * Returns one line of CSV, which ends with CRLF. A text that a spreadsheet could read as a formula
 * gets an apostrophe before it, so that it cannot run on the reader's machine (OWASP, CSV
 * injection). A formula may also follow `;`, which ends a cell in many countries, even inside
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
