import { type Command, InvalidArgumentError } from 'commander'
import { printable } from '#attestation/report/printable.ts'
import type { AdminAct, AdminLogCheck } from '../../accounts/admin-log-store.ts'
import { CliError } from '../faults.ts'
import { timeCell } from '../printable.ts'
import { type JsonOption, operations, parseTime, printList } from './operator.ts'

type LogOptions = JsonOption & {
  /** Unix seconds. */
  readonly since?: number
  readonly until?: number
  readonly kind?: string
  readonly limit: number
  readonly check?: boolean
  readonly expect?: { readonly position: number; readonly hash: string }
}

const LIMIT = 100
const LIMIT_MAX = 1_000

export function registerAdminLog(program: Command): void {
  program
    .command('admin-log')
    .description('list what administrators did, newest first, or check the chain of their hashes')
    .option('--since <date>', 'from this date or time on (UTC), such as 2027-01-31', parseTime)
    .option('--until <date>', 'before this date or time', parseTime)
    .option('--kind <kind>', 'acts of one kind, such as key.create')
    .option('--limit <number>', `how many, at most ${LIMIT_MAX}`, parseLimit, LIMIT)
    .option('--json', 'print one JSON array')
    .option(
      '--check',
      'compute the chain of hashes again; prints the position and hash of its end. Without ' +
        '--expect it does not notice missing newest acts, or a chain that was computed again',
    )
    .option(
      '--expect <position:hash>',
      'with --check: what an earlier check printed; it must be in the chain',
      parseExpected,
    )
    .action(showLog)
}

async function showLog(options: LogOptions): Promise<void> {
  const { withOperations } = await operations()
  if (options.check || options.expect !== undefined) {
    const order = { expected: options.expect ?? null }
    return printCheck(await withOperations(({ adminLog }) => adminLog.check(order)))
  }
  const { since, until, kind = null, limit } = options
  const query = { since: textOf(since), until: textOf(until), kind, limit: String(limit) }
  const { acts } = await withOperations(({ adminLog }) => adminLog.list(query))
  printList(acts, options, { titles: TITLES, toRow })
}

/** Converts Unix seconds to text for a query. Times before 1970 become 0. */
function textOf(seconds: number | undefined): string | null {
  return seconds === undefined ? null : String(Math.max(0, seconds))
}

function printCheck(check: AdminLogCheck): void {
  if (check.kind === 'altered')
    throw new CliError(`act ${check.position} was changed, or is missing`)
  const end = `${check.position}:${check.hash}`
  if (check.kind === 'unexpected')
    throw new CliError(`the chain ends at ${end} and does not have the expected act`)
  process.stdout.write(`${end}\n`)
}

const TITLES = ['POSITION', 'AT', 'WHO', 'FROM', 'KIND', 'TARGET', 'OUTCOME', 'DETAILS']

function toRow(act: AdminAct): readonly string[] {
  const { position, at, who, from, kind, target, outcome, details } = act
  const detailText = JSON.stringify(details)
  return [String(position), timeCell(at), who, from, kind, target, outcome, detailText].map(
    printable,
  )
}

function parseLimit(text: string): number {
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0
  if (limit >= 1 && limit <= LIMIT_MAX) return limit
  throw new InvalidArgumentError(`expected a whole number from 1 to ${LIMIT_MAX}`)
}

function parseExpected(text: string): { readonly position: number; readonly hash: string } {
  const [, position, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text) ?? []
  if (position !== undefined && hash !== undefined) return { position: Number(position), hash }
  throw new InvalidArgumentError('expected a position, a colon and 64 hex digits')
}
