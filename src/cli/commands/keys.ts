import { type Command, InvalidArgumentError } from 'commander'
import { isName, type KeyDescription, NAME_LENGTH_MAX } from '../../control/operations.ts'
import { readCliConfig } from '../config.ts'
import { CliError } from '../exit-codes.ts'
import { withKeys } from '../open-keys.ts'
import { printable } from '../printable.ts'

type CreateOptions = { readonly account: string; readonly name: string; readonly json?: boolean }
type ListOptions = { readonly json?: boolean }

/** Adds `keys create | list | revoke`, for the operator: whoever can reach the database, or the data folder. */
export function registerKeys(program: Command): void {
  const keys = program
    .command('keys')
    .description('make, list and revoke API keys, in DATABASE_URL or in the data folder (DATA_DIR)')
    .helpCommand(false)
  keys
    .command('create')
    .description('make a key; it is printed on standard output, this once')
    .option('--account <name>', 'account that it belongs to, made when there is none', parseName, 'default')
    .option('--name <text>', 'what it is for, to tell it from others', parseName, 'unnamed')
    .option('--json', 'print one JSON object')
    .action(createKey)
  keys
    .command('list')
    .description('list all keys, without their secrets')
    .option('--json', 'print one JSON array')
    .action(listKeys)
  keys
    .command('revoke')
    .description('end a key for good; every gateway stops taking it within a second')
    .argument('<id>', 'the id that list shows')
    .action(revokeKey)
}

async function createKey({ account, name, json }: CreateOptions): Promise<void> {
  const created = await withKeys(readCliConfig(), (keys) => keys.create({ account, name }))
  if (json) {
    process.stdout.write(`${JSON.stringify(created, null, 2)}\n`)
    return
  }
  process.stderr.write(
    `Key ${created.id} of account ${printable(account)}. It is not kept anywhere: keep it yourself.\n`,
  )
  process.stdout.write(`${created.key}\n`)
}

async function listKeys({ json }: ListOptions): Promise<void> {
  const list = await withKeys(readCliConfig(), (keys) => keys.list())
  process.stdout.write(json ? `${JSON.stringify(list, null, 2)}\n` : printList(list))
}

async function revokeKey(id: string): Promise<void> {
  const outcome = await withKeys(readCliConfig(), (keys) => keys.revoke(id))
  if (outcome === 'unknown') throw new CliError(`no key has the id ${printable(id)}`)
  process.stderr.write(`Key ${printable(id)} is revoked.\n`)
}

function parseName(text: string): string {
  if (isName(text)) return text
  throw new InvalidArgumentError(`expected 1 to ${NAME_LENGTH_MAX} characters, none for control`)
}

const TITLES = ['ID', 'ACCOUNT', 'NAME', 'CREATED', 'REVOKED']

function printList(list: readonly KeyDescription[]): string {
  const rows = list.map(({ id, account, name, created_at: created, revoked_at: revoked }) =>
    [id, account, name, dayOf(created), revoked === null ? '-' : dayOf(revoked)].map(printable),
  )
  const table = [TITLES, ...rows]
  const widths = TITLES.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0)))
  return table
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('')
}

function dayOf(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')
}
