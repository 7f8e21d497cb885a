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

/** An order without a bound removes the budget. */
const set = {
  scope: 'admin',
  reply: actDone,
  errors: ['not_found'],
  run: async (order: Order, { database }: Place) =>
    createBudgetsStore(database).set(toBudgetOrder(order)),
  trail(order: Order, outcome: string) {
    const { account, key, what, per, bound } = toBudgetOrder(order)
    return [
      { kind: 'budget.set', target: key ?? account ?? '', details: { what, per, bound }, outcome },
    ]
  },
  answer(outcome: 'set' | 'unknown_account' | 'unknown_key') {
    if (outcome === 'unknown_key') throw new ApiError('not_found', 'There is no key with this id')
    return settleAccount(outcome)
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
  }),
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
