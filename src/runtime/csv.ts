type Cell = string | number | null

/** Returns a table as CSV (RFC 4180). The first line has the names of the columns. */
export function writeCsv(columns: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [columns, ...rows].map(writeCsvLine).join('')
}

/**
 * Returns one line of CSV, which ends with CRLF. A text that a spreadsheet could run as a formula
 * gets an apostrophe before it (OWASP, CSV injection). A formula can also follow `;`, because in
 * many countries `;` ends a cell, even inside quotes.
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
