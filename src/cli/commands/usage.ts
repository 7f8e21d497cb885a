import { type Command, InvalidArgumentError, Option } from 'commander'
import { printable } from '#attestation/report/printable.ts'
import type { UsageQuery, UsageRow } from '../../accounts/usage-store.ts'
import { inWords } from '../faults.ts'
import { jsonText, textTable } from '../printable.ts'
import { type JsonOption, operations, parseTime } from './operator.ts'

type UsageOptions = JsonOption & {
  readonly account?: string
  readonly key?: string
  /** Unix seconds. */
  readonly from?: number
  readonly to?: number
  readonly by: Grouping
  readonly csv?: boolean
}

type Grouping = Pick<UsageQuery, 'per' | 'by'>

const PERIODS = ['hour', 'day', 'month'] as const
const DIMENSIONS = ['account', 'key', 'model', 'operation'] as const

export function registerUsage(program: Command): void {
  program
    .command('usage')
    .description('report what accounts used and what it cost, at the prices of PRICES_FILE')
    .option('--account <name>', 'only one account; default: all')
    .option('--key <id>', 'only one key')
    .option(
      '--from <date>',
      'from this date on (UTC), such as 2027-01-01; default: this month',
      parseTime,
    )
    .option('--to <date>', 'before this date; default: until now', parseTime)
    .addOption(
      new Option(
        '--by <list>',
        'month, day or hour (only the last 90 days), and account, key, model or operation, ' +
          'separated by commas',
      )
        .argParser(parseGrouping)
        .default(parseGrouping('month,account'), 'month,account'),
    )
    .option('--csv', 'print CSV (RFC 4180)')
    .option('--json', 'print one JSON array')
    .action(report)
}

async function report(options: UsageOptions): Promise<void> {
  const { from = beginOfMonth(), to: until = END, by: grouping, csv = false } = options
  const { withOperations } = await operations()
  const { reportSums, usageCsv, usageTable } = await import('../../accounts/usage-report.ts')
  const { account = '' } = options
  const query = {
    account: options.account ?? null,
    key: options.key ?? null,
    from,
    until,
    ...grouping,
  }
  const { rows } = await inWords(
    withOperations(({ usage }) => usage.report(query)),
    {
      not_found: `no account has the name ${printable(account)}`,
      // The text cannot be the name of an account.
      validation_failed: `no account has the name ${printable(account)}`,
      limit_reached:
        'there are too many rows: choose an account, a shorter range, or a coarser --by',
    },
  )
  if (csv) process.stdout.write(usageCsv(rows, grouping))
  else if (options.json)
    process.stdout.write(jsonText(rows.map((row: UsageRow) => ({ ...row, ...reportSums(row) }))))
  else {
    const { names, cells } = usageTable(grouping)
    const titles = names.map((name) => name.toUpperCase())
    const lines = rows.map((row) => cells(row).map((cell) => (cell === null ? '-' : String(cell))))
    process.stdout.write(textTable(titles, lines))
  }
}

/** The last ISO 8601 date with a four-digit year, Unix seconds. */
const END = Date.UTC(9999, 11, 31) / 1000

function beginOfMonth(): number {
  const now = new Date()
  return Date.UTC(now.getUTCFullYear(), now.getUTCMonth()) / 1000
}

/** Usage is always grouped by account. If `text` names no period, the whole range is one period. */
function parseGrouping(text: string): Grouping {
  const words = text.split(',')
  const periods = PERIODS.filter((period) => words.includes(period))
  const by = DIMENSIONS.filter((name) => name === 'account' || words.includes(name))
  const known: readonly string[] = [...PERIODS, ...DIMENSIONS]
  if (periods.length > 1 || words.some((word) => !known.includes(word)))
    throw new InvalidArgumentError(
      'expected one of month, day, hour, and any of account, key, model, operation, separated by commas',
    )
  return { per: periods[0] ?? 'total', by }
}
