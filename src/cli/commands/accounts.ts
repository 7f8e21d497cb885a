import { type Command, InvalidArgumentError } from 'commander'
import { printable } from '#attestation/report/printable.ts'
import { RETENTION_DAYS_MAX } from '../../storage/settings.ts'
import { inWords } from '../faults.ts'
import { jsonText, timeCell } from '../printable.ts'
import { registerSetBudget } from './budgets.ts'
import { parseNameArgument } from './keys.ts'
import { allPages, type JsonOption, operations, printList } from './operator.ts'

export function registerAccounts(program: Command): void {
  const accounts = program
    .command('accounts')
    .description('create and list accounts, set their limits and how long their content is kept')
    .helpCommand(false)
  accounts
    .command('create')
    .description('create an account; of an existing account, only the tier is changed')
    .argument('<name>', 'its name', parseNameArgument)
    .option('--tier <name>', 'tier of its limits', parseNameArgument)
    .option('--json', 'print one JSON object')
    .action(createAccount)
  accounts
    .command('list')
    .description('list all accounts')
    .option('--json', 'print one JSON array')
    .action(listAccounts)
  for (const { verb, state, description } of STATES)
    accounts
      .command(verb)
      .description(description)
      .argument('<name>', 'name of the account', parseNameArgument)
      .action((name: string) => setState(name, state))
  registerSetBudget(accounts, 'account')
  accounts
    .command('set-tier')
    .description(
      'put an account into a tier of the tiers file; every gateway applies it within a second',
    )
    .argument('<name>', 'name of the account', parseNameArgument)
    .argument('[tier]', 'name of the tier; when left out: the default tier', parseNameArgument)
    .action(setTier)
  accounts
    .command('set-retention')
    .description('set after how many days requests and answers of an account are erased')
    .argument('<name>', 'name of the account', parseNameArgument)
    .argument(
      '[days]',
      'a number of days, longer or shorter than RETENTION_DAYS; when left out: as the gateway has it',
      parseDays,
    )
    .action(setRetention)
}

async function createAccount(
  name: string,
  { tier, json }: JsonOption & { readonly tier?: string },
): Promise<void> {
  const account = await (await operations()).withOperations(async ({ accounts }) => {
    const opened = await accounts.create({ name })
    if (tier === undefined) return opened
    const refused = refusals({ name, tier })
    const made = opened.is_new ? '. The account was created, in the default tier' : ''
    const words = { ...refused, validation_failed: `${refused.validation_failed}${made}` }
    await inWords(accounts.setTier({ name, tier }), words)
    return { ...opened, tier }
  })
  process.stdout.write(json ? jsonText(account) : `${account.id}\n`)
}

async function listAccounts(options: JsonOption): Promise<void> {
  const pages = await (await operations()).withOperations(({ accounts }) =>
    allPages((cursor) => accounts.list({ limit: '1000', cursor })),
  )
  const list = pages.flatMap((page) => page.accounts).toReversed()
  printList(list, options, {
    titles: ['ID', 'NAME', 'TIER', 'CREATED', 'DISABLED'],
    toRow: (account) => [
      account.id,
      account.name,
      account.tier ?? '-',
      timeCell(account.created_at),
      timeCell(account.disabled_at),
    ],
  })
}

const STATES = [
  {
    verb: 'disable',
    state: 'disabled',
    description:
      'refuse the keys of an account with 403, within a second; running calls end as usual',
  },
  {
    verb: 'enable',
    state: 'active',
    description: 'accept the keys of an account again',
  },
  {
    verb: 'delete',
    state: 'deleted',
    description:
      'revoke the keys of an account forever and free its name; records and proofs stay (to ' +
      'erase content, do that before)',
  },
] as const

async function setState(name: string, state: (typeof STATES)[number]['state']): Promise<void> {
  const { withOperations } = await operations()
  const done = withOperations(({ accounts }) =>
    state === 'deleted' ? accounts.delete({ name }) : accounts.setState({ name, state }),
  )
  await inWords(done, refusals({ name }))
  process.stderr.write(`Account ${printable(name)} is ${state}.\n`)
}

async function setTier(name: string, tier?: string): Promise<void> {
  const { withOperations } = await operations()
  const done = withOperations(({ accounts }) => accounts.setTier({ name, tier: tier ?? null }))
  await inWords(done, refusals({ name, tier }))
  process.stderr.write(
    `Account ${printable(name)} is in ` +
      `${tier === undefined ? 'the default tier' : `tier ${printable(tier)}`}.\n`,
  )
}

async function setRetention(name: string, days?: number): Promise<void> {
  const { withOperations } = await operations()
  const order = { name, days: days ?? null }
  await inWords(
    withOperations(({ erasures }) => erasures.setRetention(order)),
    refusals({ name }),
  )
  process.stderr.write(
    `Content of account ${printable(name)} is kept ` +
      `${days === undefined ? 'for RETENTION_DAYS' : `for ${days} days`}.\n`,
  )
}

function parseDays(text: string): number {
  const days = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (days >= 1 && days <= RETENTION_DAYS_MAX) return days
  throw new InvalidArgumentError(`expected a whole number of days from 1 to ${RETENTION_DAYS_MAX}`)
}

/**
 * Commander has checked the form of names and tiers, so `validation_failed` means that the tier
 * does not exist.
 */
function refusals({
  name,
  tier = '',
}: {
  readonly name: string
  readonly tier?: string | undefined
}) {
  return {
    not_found: `no account has the name ${printable(name)}`,
    validation_failed: `the tiers file has no tier ${printable(tier)} (RATE_LIMIT_TIERS_FILE)`,
  }
}
