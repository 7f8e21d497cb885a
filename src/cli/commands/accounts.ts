import type { Command } from 'commander'
import { CliError } from '../faults.ts'
import { jsonText, printable, timeCell } from '../printable.ts'
import { parseName } from './keys.ts'
import { type JsonOption, operations, printList } from './operator.ts'

/**
 * Adds `accounts create | list | set-tier`, for the operator: whoever can reach the database, or
 * the data folder.
 */
export function registerAccounts(program: Command): void {
  const accounts = program
    .command('accounts')
    .description('make and list accounts, and set the tiers of their limits')
    .helpCommand(false)
  accounts
    .command('create')
    .description('make an account; one that there is stays as it is, but for its tier')
    .argument('<name>', 'its name', parseName)
    .option('--tier <name>', 'tier of its limits', parseName)
    .option('--json', 'print one JSON object')
    .action(createAccount)
  accounts
    .command('list')
    .description('list all accounts')
    .option('--json', 'print one JSON array')
    .action(listAccounts)
  accounts
    .command('set-tier')
    .description(
      'put an account into a tier of the tiers file; every gateway heeds it within a second',
    )
    .argument('<name>', 'name of the account', parseName)
    .argument('[tier]', 'name of the tier; without one, the default tier', parseName)
    .action(setTier)
}

async function createAccount(
  name: string,
  { tier, json }: JsonOption & { readonly tier?: string },
): Promise<void> {
  const account = await (await operations()).withOperations(async ({ accounts }) => {
    const opened = await accounts.open(name)
    if (tier === undefined) return opened
    checkOutcome(await accounts.setTier({ name, tier }), { name, tier })
    return { ...opened, tier }
  })
  process.stdout.write(json ? jsonText(account) : `${account.id}\n`)
}

async function listAccounts(options: JsonOption): Promise<void> {
  const list = await (await operations()).withOperations(({ accounts }) => accounts.list())
  printList(list, options, {
    titles: ['ID', 'NAME', 'TIER', 'CREATED'],
    toRow: ({ id, name, tier, created_at: created }) => [id, name, tier ?? '-', timeCell(created)],
  })
}

async function setTier(name: string, tier?: string): Promise<void> {
  const order = { name, tier: tier ?? null }
  checkOutcome(
    await (await operations()).withOperations(({ accounts }) => accounts.setTier(order)),
    order,
  )
  process.stderr.write(
    `Account ${printable(name)} is in ${tier === undefined ? 'the default tier' : `tier ${printable(tier)}`}.\n`,
  )
}

function checkOutcome(
  outcome: 'set' | 'unknown_account' | 'unknown_tier',
  { name, tier }: { readonly name: string; readonly tier: string | null },
): void {
  if (outcome === 'unknown_account')
    throw new CliError(`no account has the name ${printable(name)}`)
  if (outcome === 'unknown_tier')
    throw new CliError(
      `the tiers file has no tier ${printable(tier ?? '')} (RATE_LIMIT_TIERS_FILE)`,
    )
}
