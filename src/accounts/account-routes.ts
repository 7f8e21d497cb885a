import { z } from 'zod'
import { ADMIN_ROUTE, type AdminBy, adminDone, adminName, unfitFor } from '../api/admin-calls.ts'
import {
  accountDescription,
  budgetDescription,
  budgetOrder,
  type GatewayOperations,
} from '../api/control-operations.ts'
import { ApiError } from '../api/errors.ts'
import { boundedInteger } from '../api/form-schema.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { integerText, patternText } from '../api/schemas.ts'
import type { BudgetName, BudgetsStore } from './budgets-store.ts'
import type { KeysStore } from './keys-store.ts'
import { describeAccount } from './operations.ts'

/** Accounts, or budgets, of a page, at most and when the query does not say. */
const LIMIT_MAX = 1_000
const LIMIT = 100
const limit = integerText({ min: 1, max: LIMIT_MAX }).default(LIMIT)

const accountCursor = patternText(
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  'uuid_parsing',
  'a valid UUID',
).transform((text) => text.toLowerCase())

const accountsQuery = z.object({ limit, cursor: accountCursor.nullable().default(null) })

const accountPage = z.strictObject({
  accounts: z.array(accountDescription).describe('Newest first'),
  cursor: z.uuid().nullable().describe('Send it to get the next page; null at the end'),
})
export type AccountPageReply = z.output<typeof accountPage>

const keyId = patternText(/^[a-z2-7]{16}$/, 'value_error', 'the id of a key')
const { what, per } = budgetOrder.shape

/** Whose budget it is, and which: of an account, or of a key. */
const ownBudget = { account: adminName.nullish(), key: keyId.nullish(), what, per }
const budget = z.looseObject({
  ...ownBudget,
  bound: boundedInteger({ min: 0 }).describe('Of money in billionths'),
})

const budgetsQuery = z.object({
  account: adminName.nullable().default(null),
  key: keyId.nullable().default(null),
  limit,
  cursor: z.string().max(1_000).nullable().default(null),
})

const budgetPage = z.strictObject({
  budgets: z.array(budgetDescription),
  cursor: z.string().nullable().describe('Send it to get the next page; null at the end'),
})
export type BudgetPageReply = z.output<typeof budgetPage>

/** Routes of the operator's over accounts and their budgets, for keys with the scope `admin`. */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: declarations of routes
export function accountRoutes(
  by: AdminBy<Pick<GatewayOperations, 'accounts' | 'budgets'>>,
  {
    pageAccounts,
    listBudgets,
  }: {
    readonly pageAccounts: KeysStore['pageAccounts']
    readonly listBudgets: BudgetsStore['list']
  },
): readonly Route[] {
  const { admission, bytesMax, ...admin } = ADMIN_ROUTE
  const changes = { ...admin, reply: adminDone, errors: ['not_found'], admission } as const
  return [
    defineRoute({
      ...admin,
      method: 'GET',
      path: '/v1/admin/accounts',
      summary: 'Accounts with their tiers, newest first',
      query: accountsQuery,
      reply: { name: 'AdminAccounts', schema: accountPage },
      async handler({ query }) {
        const accounts = await pageAccounts(query)
        if (accounts === 'unknown_cursor')
          throw unfitFor('query', 'cursor', 'Input should be the cursor of a page')
        return {
          accounts: accounts.map(describeAccount),
          cursor: cursorOf(accounts, query)?.id ?? null,
        }
      },
    }),
    defineRoute({
      ...admin,
      method: 'POST',
      path: '/v1/admin/accounts',
      summary: 'Open an account, unless there is already an account with this name',
      body: {
        name: 'AdminOpenAccount',
        schema: z.looseObject({ name: adminName }),
        bytesMax,
        example: { name: 'customers' },
      },
      reply: { name: 'AdminAccount', schema: accountDescription },
      admission,
      async handler({ body, ...call }) {
        const { is_new: _, ...account } = await by(call).accounts.open(body.name)
        return account
      },
    }),
    defineRoute({
      ...changes,
      method: 'PUT',
      path: '/v1/admin/accounts',
      summary: "Set an account's tier; null means the default tier",
      body: {
        name: 'AdminSetTier',
        schema: z.looseObject({ name: adminName, tier: adminName.nullable() }),
        bytesMax,
        example: { name: 'customers', tier: null },
      },
      async handler({ body, ...call }) {
        const outcome = await by(call).accounts.setTier({ name: body.name, tier: body.tier })
        if (outcome === 'unknown_tier')
          throw unfitFor('body', 'tier', 'Input should be a tier of this gateway')
        return settled(outcome)
      },
    }),
    defineRoute({
      ...changes,
      method: 'PUT',
      path: '/v1/admin/accounts/state',
      summary: 'Disable an account (its keys get 403 within a second), or take it into use again',
      body: {
        name: 'AdminSetAccountState',
        schema: z.looseObject({ name: adminName, state: z.enum(['active', 'disabled']) }),
        bytesMax,
        example: { name: 'customers', state: 'disabled' },
      },
      async handler({ body: { name, state }, ...call }) {
        return settled(await by(call).accounts.setState({ name, state }))
      },
    }),
    defineRoute({
      ...changes,
      method: 'DELETE',
      path: '/v1/admin/accounts',
      summary: 'Revoke the keys of an account forever and free its name; its records stay',
      query: z.looseObject({ name: adminName }),
      async handler({ query: { name }, ...call }) {
        return settled(await by(call).accounts.setState({ name, state: 'deleted' }))
      },
    }),
    defineRoute({
      ...admin,
      method: 'GET',
      path: '/v1/admin/budgets',
      summary: 'Budgets of accounts and keys, with what is used and left',
      query: budgetsQuery,
      reply: { name: 'AdminBudgets', schema: budgetPage },
      async handler({ query }) {
        const { account: accountName, key } = query
        const after = readBudgetCursor(query.cursor)
        const budgets = await listBudgets({ accountName, keyId: key, after, limit: query.limit })
        const last = cursorOf(budgets, query)
        return { budgets, cursor: last === null ? null : writeBudgetCursor(last) }
      },
    }),
    defineRoute({
      ...changes,
      method: 'PUT',
      path: '/v1/admin/budgets',
      summary: 'Set a budget of an account or of a key; every gateway applies it within a second',
      body: {
        name: 'AdminSetBudget',
        schema: budget,
        bytesMax,
        example: { account: 'customers', what: 'tokens', per: 'month', bound: 1_000_000 },
      },
      async handler({ body: { bound, ...name }, ...call }) {
        return settled(await by(call).budgets.set({ ...nameBudget(name, 'body'), bound }))
      },
    }),
    defineRoute({
      ...changes,
      method: 'DELETE',
      path: '/v1/admin/budgets',
      summary: 'Remove a budget of an account or of a key',
      query: z.looseObject(ownBudget),
      async handler({ query, ...call }) {
        return settled(await by(call).budgets.set({ ...nameBudget(query, 'query'), bound: null }))
      },
    }),
  ]
}

/** The last of a page that is full; null at the end. */
function cursorOf<Item>(items: readonly Item[], { limit }: { readonly limit: number }) {
  return items.length < limit ? null : (items.at(-1) ?? null)
}

function writeBudgetCursor({ account, key, what, per }: BudgetName): string {
  return `${what} ${per} ${key ?? '-'} ${account}`
}

/** Throws ValidationError for a text that no page gave. */
function readBudgetCursor(text: string | null): BudgetName | null {
  if (text === null) return null
  const [whatText = '', perText = '', key = '', ...words] = text.split(' ')
  const given = budgetOrder.pick({ account: true, key: true, what: true, per: true }).safeParse({
    account: words.join(' '),
    key: key === '-' ? null : key,
    what: whatText,
    per: perText,
  })
  if (!given.success || given.data.account === null)
    throw unfitFor('query', 'cursor', 'Input should be the cursor of a page')
  return { ...given.data, account: given.data.account }
}

/** Throws ValidationError when no account has it. */
function nameBudget(
  { account = null, key = null, what, per }: z.output<z.ZodObject<typeof ownBudget>>,
  place: 'body' | 'query',
) {
  if (account === null && key === null)
    throw unfitFor(place, 'account', 'Input should have an account or a key')
  return { account, key, what, per }
}

/** Throws what an outcome is to the caller that is not what was asked for. */
function settled(outcome: 'set' | 'unknown_account' | 'unknown_key') {
  if (outcome === 'unknown_account')
    throw new ApiError('not_found', 'There is no account with this name')
  if (outcome === 'unknown_key') throw new ApiError('not_found', 'There is no key with this id')
  return { outcome: 'done' }
}
