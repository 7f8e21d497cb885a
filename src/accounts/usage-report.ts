import { writeCsv } from '../runtime/csv.ts'
import { formatMoney } from './prices.ts'
import type { UsageQuery, UsageRow } from './usage-store.ts'

type UsagePeriod = UsageQuery['per']
type UsageDimension = UsageQuery['by'][number]
type UsageSums = Pick<UsageRow, (typeof SUM_COLUMNS)[number]>

/** Null means that a sum is unknown. It does not mean 0. */
export type ReportedSums = {
  readonly requests: number
  readonly tokens: number
  readonly prompt_tokens: number | null
  readonly completion_tokens: number | null
  readonly unsplit_tokens: number
  /** Decimal text, in the unit of the price file. */
  readonly money: string | null
  readonly unpriced_requests: number
}

/**
 * Prompt and answer are null if they were never counted separately. Money is null if no request has
 * a price.
 */
export function reportSums(sums: UsageSums): ReportedSums {
  const isUnsplit = sums.tokens > 0 && sums.unsplit_tokens >= sums.tokens
  const isUnpriced = sums.requests > 0 && sums.unpriced_requests >= sums.requests
  return {
    requests: sums.requests,
    tokens: sums.tokens,
    prompt_tokens: isUnsplit ? null : sums.prompt_tokens,
    completion_tokens: isUnsplit ? null : sums.completion_tokens,
    unsplit_tokens: sums.unsplit_tokens,
    money: isUnpriced || sums.requests === 0 ? null : formatMoney(BigInt(sums.money)),
    unpriced_requests: sums.unpriced_requests,
  }
}

export function sumRows(rows: readonly UsageRow[]): UsageSums {
  const sum = (member: keyof Omit<UsageSums, 'money'>) =>
    Math.min(
      rows.reduce((total, row) => total + row[member], 0),
      Number.MAX_SAFE_INTEGER,
    )
  return {
    requests: sum('requests'),
    tokens: sum('tokens'),
    prompt_tokens: sum('prompt_tokens'),
    completion_tokens: sum('completion_tokens'),
    unsplit_tokens: sum('unsplit_tokens'),
    money: String(rows.reduce((total, row) => total + BigInt(row.money), 0n)),
    unpriced_requests: sum('unpriced_requests'),
  }
}

/** Returns the report's dimensions and sums as columns. */
export function usageTable({
  per,
  by,
}: {
  readonly per: UsagePeriod
  readonly by: readonly UsageDimension[]
}) {
  const columns: readonly (readonly [string, (row: UsageRow, reported: ReportedSums) => Cell])[] = [
    ...(per === 'total' ? [] : [[per, (row: UsageRow) => nameStart(row.start, per)] as const]),
    ...by.flatMap((dimension) => DIMENSION_COLUMNS[dimension]),
    ...SUM_COLUMNS.map(
      (name) => [name, (_: UsageRow, reported: ReportedSums) => reported[name]] as const,
    ),
  ]
  return {
    names: columns.map(([name]) => name),
    cells: (row: UsageRow): readonly Cell[] => {
      const reported = reportSums(row)
      return columns.map(([, cell]) => cell(row, reported))
    },
  }
}

type Cell = string | number | null

export function usageCsv(
  rows: readonly UsageRow[],
  report: Parameters<typeof usageTable>[0],
): string {
  const { names, cells } = usageTable(report)
  return writeCsv(names, rows.map(cells))
}

const DIMENSION_COLUMNS: Readonly<
  Record<UsageDimension, readonly (readonly [string, (row: UsageRow) => Cell])[]>
> = {
  account: [
    ['account', ({ account }) => account],
    ['account_id', (row) => row.account_id],
  ],
  key: [['key', ({ key }) => key]],
  operation: [
    ['operation', ({ operation }) => operation],
    ['model_family', ({ family }) => family],
  ],
  model: [['model', ({ model }) => model]],
}

const SUM_COLUMNS = [
  'requests',
  'tokens',
  'prompt_tokens',
  'completion_tokens',
  'unsplit_tokens',
  'money',
  'unpriced_requests',
] as const

/** UTC: `2027-01`, `2027-01-31`, `2027-01-31T23:00Z`. */
function nameStart(start: number, per: UsagePeriod): string {
  const text = new Date(start * 1000).toISOString()
  if (per === 'hour') return `${text.slice(0, 16)}Z`
  return text.slice(0, per === 'month' ? 7 : 10)
}
