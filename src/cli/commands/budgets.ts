import { type Command, InvalidArgumentError } from 'commander'
import { printable } from '#attestation/report/printable.ts'
import type { BudgetDescription } from '../../accounts/budgets-store.ts'
import { CliError, EXIT_CODES, inWords } from '../faults.ts'
import { timeCell } from '../printable.ts'
import { allPages, type JsonOption, operations, printList } from './operator.ts'

const WHAT = ['requests', 'tokens', 'money'] as const
const PERIODS = ['day', 'month', 'total'] as const
type Budget = { readonly what: (typeof WHAT)[number]; readonly per: (typeof PERIODS)[number] }

export function registerSetBudget(parent: Command, of: 'account' | 'key'): void {
  const [whose, how] = of === 'account' ? ['an account', 'its name'] : ['a key', 'its id']
  parent
    .command('set-budget')
    .description(`set the most that ${whose} may use; every gateway applies it within a second`)
    .argument(`<${of}>`, how)
    .argument('<what>', WHAT.join(', '), (text) => oneOf(WHAT, text))
    .argument('<per>', `${PERIODS.join(', ')} (UTC)`, (text) => oneOf(PERIODS, text))
    .argument(
      '<bound>',
      'a number, for money with up to 9 digits after the point; or the word none',
    )
    .action((id: string, what: Budget['what'], per: Budget['per'], bound: string) =>
      setBudget(of, id, { what, per, bound }),
    )
}

export function registerBudgets(program: Command): void {
  program
    .command('budgets')
    .description('list the budgets of accounts and keys: the most, what is used and left, renewal')
    .option('--account <name>', 'only one account and its keys')
    .option('--json', 'print one JSON array; money is in billionths')
    .action(listBudgets)
}

async function listBudgets({
  account,
  ...options
}: JsonOption & { readonly account?: string }): Promise<void> {
  const { withOperations } = await operations()
  const { formatMoney } = await import('../../accounts/prices.ts')
  const pages = await withOperations(({ budgets }) =>
    allPages((cursor) => budgets.list({ limit: '1000', cursor })),
  )
  const list = pages
    .flatMap((page) => page.budgets)
    .filter((budget) => account === undefined || budget.account === account)
  printList(list, options, {
    titles: ['ACCOUNT', 'KEY', 'WHAT', 'PER', 'BOUND', 'USED', 'LEFT', 'RENEWS'],
    toRow: ({ what, ...budget }: BudgetDescription) => [
      budget.account,
      budget.key ?? '-',
      what,
      budget.per,
      ...[budget.bound, budget.used, budget.left].map((amount) =>
        what === 'money' ? formatMoney(amount) : String(amount),
      ),
      timeCell(budget.renews_at),
    ],
  })
}

async function setBudget(
  of: 'account' | 'key',
  id: string,
  { what, per, bound }: Budget & { readonly bound: string },
): Promise<void> {
  const { withOperations } = await operations()
  const { parseMoney } = await import('../../accounts/prices.ts')
  const amount =
    bound === 'none' ? null : parseAmount(what === 'money' ? parseMoney(bound) : parseCount(bound))
  const budget = { ...(of === 'account' ? { account: id } : { key: id }), what, per }
  const unknown = of === 'account' ? 'no account has the name' : 'no key has the id'
  const unbounded = await inWords(
    withOperations(async ({ budgets }) => {
      if (amount !== null) return (await budgets.set({ ...budget, bound: amount })).unbounded_keys
      await budgets.remove(budget)
      return []
    }),
    // `validation_failed`: the text cannot be the name of an account or the id of a key.
    {
      not_found: `${unknown} ${printable(id)}`,
      validation_failed: `${unknown} ${printable(id)}`,
    },
  )
  const budgetText = amount === null ? 'no budget' : 'a budget'
  const period = per === 'total' ? 'in total' : `per ${per}`
  process.stderr.write(`${printable(id)} has ${budgetText} of ${what} ${period}.\n`)
  if (unbounded.length > 0)
    process.stderr.write(
      `Warning: this budget does not bound the keys that this key created: ${unbounded.join(', ')}. ` +
        'Revoke them (affidavit keys revoke ID), or set a budget of the account ' +
        '(affidavit accounts set-budget).\n',
    )
}

function parseCount(text: string): bigint | null {
  return /^\d{1,15}$/.test(text) ? BigInt(text) : null
}

function parseAmount(amount: bigint | null): number {
  if (amount === null || amount > BigInt(Number.MAX_SAFE_INTEGER))
    throw new CliError(
      'expected a number such as 1000, for money 12.50, or the word none',
      EXIT_CODES.usage,
    )
  return Number(amount)
}

function oneOf<Word extends string>(words: readonly Word[], text: string): Word {
  const word = words.find((one) => one === text)
  if (word === undefined) throw new InvalidArgumentError(`expected one of ${words.join(', ')}`)
  return word
}
