import { type Command, InvalidArgumentError, Option } from 'commander'
import { printable } from '#attestation/report/printable.ts'
import type { ManagedKey } from '../../accounts/key-routes.ts'
import { DEFAULT_SCOPES, isScope, SCOPES, type Scope } from '../../api/context.ts'
import { isName, NAME_LENGTH_MAX } from '../../api/schemas.ts'
import { inWords } from '../faults.ts'
import { jsonText, timeCell } from '../printable.ts'
import { registerSetBudget } from './budgets.ts'
import { type JsonOption, operations, printList } from './operator.ts'

type CreateOptions = JsonOption & {
  readonly account: string
  readonly name: string
  readonly scopes: readonly Scope[]
  /** Unix seconds. */
  readonly expires?: number
}

export function registerKeys(program: Command): void {
  const keys = program
    .command('keys')
    .description(
      'create, list and revoke API keys, in DATABASE_URL or in the data folder (DATA_DIR)',
    )
    .helpCommand(false)
  keys
    .command('create')
    .description('create a key; it is printed once, on standard output')
    .option(
      '--account <name>',
      'account that it belongs to; a new account is created if necessary',
      parseNameArgument,
      'default',
    )
    .option('--name <text>', 'a name that says what the key is for', parseNameArgument, 'unnamed')
    .addOption(
      new Option('--scopes <list>', `what it may do: one or more of ${SCOPES.join(',')}`)
        .argParser(parseScopes)
        .default(DEFAULT_SCOPES, DEFAULT_SCOPES.join(',')),
    )
    .option(
      '--expires <when>',
      'when it expires: 90d, 12h, 30m, or a date such as 2027-01-31',
      parseExpiry,
    )
    .option('--json', 'print one JSON object')
    .action(createKey)
  keys
    .command('list')
    .description('list all keys, without their secrets')
    .option('--json', 'print one JSON array')
    .action(listKeys)
  registerSetBudget(keys, 'key')
  keys
    .command('revoke')
    .description(
      'revoke a key, and the keys that it created for its account, forever; it takes effect ' +
        'everywhere within a second. Keys that it created for other accounts stay, and are named',
    )
    .argument('<id>', 'its id, as list shows it')
    .action(revokeKey)
}

/** Throws InvalidArgumentError. */
export function parseNameArgument(text: string): string {
  if (isName(text)) return text
  throw new InvalidArgumentError(
    `expected 1 to ${NAME_LENGTH_MAX} characters without control characters`,
  )
}

async function createKey({ account, name, scopes, expires, json }: CreateOptions): Promise<void> {
  const order = { account, name, scopes, expires_at: expires ?? null }
  const { withOperations } = await operations()
  const created = shown(await withOperations(({ keys }) => keys.create(order)))
  if (json) {
    process.stdout.write(jsonText(created))
    return
  }
  const until = created.expires_at === null ? '' : `, until ${timeCell(created.expires_at)} UTC`
  process.stderr.write(
    `Key ${created.id} of account ${printable(account)}, for ${created.scopes.join(', ')}${until}. ` +
      'The gateway does not store it: keep it yourself.\n',
  )
  process.stdout.write(`${created.key}\n`)
}

async function listKeys(options: JsonOption): Promise<void> {
  const list = await (await operations()).withOperations(({ keys }) => keys.list({}))
  printList(list.keys.map(shown), options, { titles: TITLES, toRow })
}

async function revokeKey(id: string): Promise<void> {
  const { withOperations } = await operations()
  const left = await withOperations(async ({ keys }) => {
    const { revoked } = await inWords(keys.revoke({ id }), {
      not_found: `no key has the id ${printable(id)}`,
    })
    const others = revoked.filter((other) => other !== id)
    const more = others.length === 0 ? '' : `, and the keys that it created: ${others.join(', ')}`
    process.stderr.write(`Key ${printable(id)} is revoked${more}.\n`)
    return validKeysFrom(id, (await keys.list({})).keys)
  })
  if (left.length > 0)
    process.stderr.write(
      `Warning: these keys, which it created for other accounts, are still valid: ${left.join(', ')}. ` +
        'Revoke them, too (affidavit keys revoke ID).\n',
    )
}

/** Returns the ids of the valid keys that the key `id` created, that these created, and so on. */
function validKeysFrom(id: string, keys: readonly ManagedKey[]): readonly string[] {
  const createdBy = Map.groupBy(keys, (key) => key.created_by)
  const created: ManagedKey[] = [...(createdBy.get(id) ?? [])]
  for (const key of created) created.push(...(createdBy.get(key.id) ?? []))
  const nowSeconds = Date.now() / 1000
  return created
    .filter(({ revoked_at: at, expires_at: end }) => at === null && (end ?? Infinity) > nowSeconds)
    .map((key) => key.id)
}

const TITLES = ['ID', 'ACCOUNT', 'NAME', 'CREATED', 'REVOKED', 'EXPIRES', 'LAST USED', 'SCOPES']

/** The result has the account's name instead of the account's id. */
function shown<Key extends ManagedKey>(key: Key) {
  const { id, account_id: _, account_name: account, ...more } = key
  return { id, account, ...more }
}

function toRow(key: ReturnType<typeof shown<ManagedKey>>): readonly string[] {
  const times = [key.created_at, key.revoked_at, key.expires_at, key.last_used_at].map(timeCell)
  return [key.id, key.account, key.name, ...times, key.scopes.join(',')]
}

function parseScopes(text: string): readonly Scope[] {
  const names = text.split(',')
  if (names.every(isScope) && new Set(names).size === names.length) return names
  throw new InvalidArgumentError(
    `expected names from ${SCOPES.join(', ')}, each once, separated by commas`,
  )
}

const UNIT_SECONDS: Readonly<Record<string, number>> = { d: 86_400, h: 3_600, m: 60 }

/** Returns Unix seconds. A date means the first moment of that day in UTC. */
function parseExpiry(text: string): number {
  const nowMs = Date.now()
  const [, count, unit = ''] = /^(\d{1,6})([dhm])$/.exec(text) ?? []
  const seconds =
    count === undefined
      ? parseDate(text)
      : Math.floor(nowMs / 1000) + Number(count) * (UNIT_SECONDS[unit] ?? Number.NaN)
  if (seconds * 1000 > nowMs) return seconds
  throw new InvalidArgumentError(
    'expected days, hours or minutes such as 90d, or a date in the future such as 2027-01-31',
  )
}

/** Returns NaN for text that is not a date, or a day that the month does not have. */
function parseDate(text: string): number {
  const date = new Date(/^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00Z` : Number.NaN)
  return Number.isNaN(date.getTime()) || date.toISOString().slice(0, 10) !== text
    ? Number.NaN
    : date.getTime() / 1000
}
