/** A row of the table: what is measured, and its aim; null: measured without an aim. */
export type Row = {
  readonly name: string
  readonly what: string
  readonly unit: string
  readonly digits: number
  readonly aim: { readonly atLeast: number } | { readonly atMost: number } | null
}

/**
 * The figures of a run, by the row's name; a text gives the reason why a row could not be measured.
 */
export type Figures = Readonly<Record<string, number | string>>

/** The rows in order, each with the median of its runs' figures. */
export function writeTable(rows: readonly Row[], runs: readonly Figures[]): string {
  const lines = rows.map((row) => {
    const figures = runs.map((run) => run[row.name] ?? 'not measured')
    const numbers = figures.filter((figure) => typeof figure === 'number')
    const reason = figures.find((figure) => typeof figure === 'string')
    if (numbers.length === 0) return [row.what, reason ?? '', writeAim(row), '', '']
    const value = median(numbers)
    const all = numbers.map((number) => number.toFixed(row.digits)).join(', ')
    return [row.what, `${write(row, value)}`, writeAim(row), judge(row, value), all]
  })
  const cells = [['what', 'measured', 'aim', 'met', 'runs'], ...lines]
  const widths = [0, 1, 2, 3, 4].map((at) =>
    Math.max(...cells.map((line) => line[at]?.length ?? 0)),
  )
  const [head = [], ...rest] = cells.map((line) =>
    line.map((cell, at) => cell.padEnd(widths[at] ?? 0)),
  )
  const rule = widths.map((width) => '-'.repeat(width))
  return [head, rule, ...rest].map((line) => `| ${line.join(' | ')} |`).join('\n')
}

/** The middle value; NaN without values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}

function write({ unit, digits }: Row, value: number): string {
  return unit === '' ? value.toFixed(digits) : `${value.toFixed(digits)} ${unit}`
}

function writeAim(row: Row): string {
  if (row.aim === null) return 'measured'
  return 'atLeast' in row.aim
    ? `≥ ${write(row, row.aim.atLeast)}`
    : `≤ ${write(row, row.aim.atMost)}`
}

function judge({ aim }: Row, value: number): string {
  if (aim === null) return ''
  return ('atLeast' in aim ? value >= aim.atLeast : value <= aim.atMost) ? 'met' : 'not met'
}
