import { z } from 'zod'
import { ApiError, unfitFor } from '../api/errors.ts'
import { boundedInteger } from '../api/form-schema.ts'
import { nameText } from '../api/schemas.ts'
import type { Database } from '../storage/database.ts'
import { lastOfFull, pageLimit, settleAccount } from './account-acts.ts'
import { actDone, defineAct } from './acts.ts'
import { keyIdText } from './api-keys.ts'
import {
  type BudgetName,
  type BudgetOrder,
  budgetDescription,
  createBudgetsStore,
} from './budgets-store.ts'

const { what, per } = budgetDescription.shape

const ownBudget = { account: nameText.nullish(), key: keyIdText.nullish(), what, per }

const budgetPage = z.strictObject({
  budgets: z.array(budgetDescription),
  cursor: z.string().nullable().describe('Send it to get the next page; null at the end'),
})
export type BudgetPageReply = z.output<typeof budgetPage>

type Place = { readonly database: Pick<Database, 'queries'> }

type Order = z.output<z.ZodObject<typeof ownBudget>> & { readonly bound?: number }

const budgetSet = actDone.schema.extend({
  unbounded_keys: z
    .array(z.string())
    .describe(
      'Ids of the valid keys that the key created, and that these keys created: the budget does ' +
        'not bound them. Empty for the budget of an account',
    ),
})

export type BudgetSetReply = z.output<typeof budgetSet>

type Outcome = {
  readonly settled: 'set' | 'unknown_account' | 'unknown_key'
  readonly unboundedKeys: readonly string[]
}

/** An order without a bound removes the budget. */
const set = {
  scope: 'admin',
  errors: ['not_found'],
  async run(order: Order, { database }: Place): Promise<Outcome> {
    const budgets = createBudgetsStore(database)
    const budget = toBudgetOrder(order)
    const settled = await budgets.set(budget)
    const { key, bound } = budget
    const isOfKey = key !== null && bound !== null
    return { settled, unboundedKeys: isOfKey ? await budgets.listUnbounded(key) : [] }
  },
  trail(order: Order, { settled: outcome }: Outcome) {
    const { account, key, what, per, bound } = toBudgetOrder(order)
    return [
      { kind: 'budget.set', target: key ?? account ?? '', details: { what, per, bound }, outcome },
    ]
  },
} as const

export const budgetActs = {
  list: defineAct({
    method: 'GET',
    path: '/v1/admin/budgets',
    summary: 'Budgets of accounts and keys, with what is used and left',
    scope: 'admin',
    query: z.object({
      account: nameText.nullable().default(null),
      key: keyIdText.nullable().default(null),
      limit: pageLimit,
      cursor: z.string().max(1_000).nullable().default(null),
    }),
    reply: { name: 'AdminBudgets', schema: budgetPage },
    run: async ({ account: accountName, key: keyId, cursor, limit }, { database }: Place) =>
      createBudgetsStore(database).list({ accountName, keyId, after: readCursor(cursor), limit }),
    trail: 'changes nothing',
    answer(budgets, { limit }) {
      const last = lastOfFull(budgets, limit)
      return { budgets: [...budgets], cursor: last === null ? null : writeCursor(last) }
    },
  }),
  set: defineAct({
    ...set,
    method: 'PUT',
    path: '/v1/admin/budgets',
    summary: 'Set a budget of an account or of a key; every gateway applies it within a second',
    body: {
      name: 'AdminSetBudget',
      schema: z.looseObject({
        ...ownBudget,
        bound: boundedInteger({ min: 0 }).describe('Of money in billionths'),
      }),
      example: { account: 'customers', what: 'tokens', per: 'month', bound: 1_000_000 },
    },
    reply: { name: 'AdminBudgetSet', schema: budgetSet },
    answer: ({ settled, unboundedKeys }) => ({
      ...settle(settled),
      unbounded_keys: [...unboundedKeys],
    }),
  }),
  remove: defineAct({
    ...set,
    method: 'DELETE',
    path: '/v1/admin/budgets',
    summary: 'Remove a budget of an account or of a key',
    // Removes `bound` from the query, because `bound` would set the budget.
    query: z
      .looseObject(ownBudget)
      .transform(({ account, key, what, per }) => ({ account, key, what, per })),
    reply: actDone,
    answer: ({ settled }) => settle(settled),
  }),
}

/** Throws ApiError `not_found`. */
function settle(outcome: Outcome['settled']) {
  if (outcome === 'unknown_key') throw new ApiError('not_found', 'There is no key with this id')
  return settleAccount(outcome)
}

/** Throws ValidationError when the order names neither an account nor a key. */
function toBudgetOrder({ account = null, key = null, what, per, bound }: Order): BudgetOrder {
  if (account === null && key === null)
    throw unfitFor(
      bound === undefined ? 'query' : 'body',
      'account',
      'Input should have an account or a key',
    )
  return { account, key, what, per, bound: bound ?? null }
}

function writeCursor({ account, key, what, per }: BudgetName): string {
  return `${what} ${per} ${key ?? '-'} ${account}`
}

/** Throws ValidationError if the text is not a page cursor. */
function readCursor(text: string | null): BudgetName | null {
  if (text === null) return null
  const [whatText = '', perText = '', key = '', ...words] = text.split(' ')
  const account = nameText.safeParse(words.join(' '))
  const kind = z.object({ what, per }).safeParse({ what: whatText, per: perText })
  if (!account.success || !kind.success)
    throw unfitFor('query', 'cursor', 'Input should be the cursor of a page')
  return { ...kind.data, account: account.data, key: key === '-' ? null : key }
}
