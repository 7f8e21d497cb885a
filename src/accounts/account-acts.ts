import { z } from 'zod'
import { ApiError, unfitFor } from '../api/errors.ts'
import { integerText, nameText, uuidText } from '../api/schemas.ts'
import type { Database } from '../storage/database.ts'
import { actDone, defineAct } from './acts.ts'
import { type Account, createKeysStore } from './keys-store.ts'
import { keysIn } from './open-keys.ts'

export const pageLimit = integerText({ min: 1, max: 1_000 }).default(100)

const accountCursor = uuidText.transform((text) => text.toLowerCase())

const accountDescription = z.object({
  id: z.string(),
  name: z.string(),
  /** Null: the standard tier. */
  tier: z.string().nullable(),
  created_at: z.int(),
  /** The account's keys are refused from this time on. Null if the account is enabled. */
  disabled_at: z.int().nullable(),
})
export type AccountDescription = Readonly<z.output<typeof accountDescription>>

const accountPage = z.strictObject({
  accounts: z.array(accountDescription).describe('Newest first'),
  cursor: z.uuid().nullable().describe('Send it to get the next page; null at the end'),
})
export type AccountPageReply = z.output<typeof accountPage>

type Place = { readonly database: Pick<Database, 'queries'> }

const open = {
  method: 'POST',
  run: ({ name }: { readonly name: string }, { database }: Place) =>
    keysIn(database).openAccount(name),
  trail: ({ name }: { readonly name: string }, { isNew }: { readonly isNew: boolean }) =>
    isNew ? [{ kind: 'account.open', target: name }] : [],
} as const

export const accountActs = {
  list: defineAct({
    method: 'GET',
    path: '/v1/admin/accounts',
    summary: 'Accounts with their tiers, newest first',
    scope: 'admin',
    query: z.object({ limit: pageLimit, cursor: accountCursor.nullable().default(null) }),
    reply: { name: 'AdminAccounts', schema: accountPage },
    run: (query, { database }: Place) => createKeysStore(database).pageAccounts(query),
    trail: 'changes nothing',
    answer(accounts, query) {
      if (accounts === 'unknown_cursor')
        throw unfitFor('query', 'cursor', 'Input should be the cursor of a page')
      return {
        accounts: accounts.map(describe),
        cursor: lastOfFull(accounts, query.limit)?.id ?? null,
      }
    },
  }),
  open: defineAct({
    ...open,
    path: '/v1/admin/accounts',
    summary: 'Open an account, unless there is already an account with this name',
    scope: 'admin',
    body: {
      name: 'AdminOpenAccount',
      schema: z.looseObject({ name: nameText }),
      example: { name: 'customers' },
    },
    reply: { name: 'AdminAccount', schema: accountDescription },
    answer: describe,
  }),
  /** The reply states whether the account is new. */
  create: defineAct({
    ...open,
    path: '/v1/admin/accounts/new',
    summary: 'Open an account, and say whether it is new',
    scope: 'operator',
    body: { schema: z.object({ name: nameText }) },
    reply: { schema: accountDescription.extend({ is_new: z.boolean() }) },
    answer: (account) => ({ ...describe(account), is_new: account.isNew }),
  }),
  /** Every gateway applies the change within a second. */
  setTier: defineAct({
    method: 'PUT',
    path: '/v1/admin/accounts',
    summary: "Set an account's tier; null means the default tier",
    scope: 'admin',
    body: {
      name: 'AdminSetTier',
      schema: z.looseObject({ name: nameText, tier: nameText.nullable() }),
      example: { name: 'customers', tier: null },
    },
    reply: actDone,
    errors: ['not_found'],
    async run({ name, tier }, { database, tiers }: Place & Tiered) {
      if (tier !== null && tiers !== null && !tiers().includes(tier)) return 'unknown_tier'
      return outcomeOf(await createKeysStore(database).setTier(name, tier))
    },
    trail: ({ name, tier }, outcome) => [
      { kind: 'account.set_tier', target: name, details: { tier }, outcome },
    ],
    answer(outcome) {
      if (outcome === 'unknown_tier')
        throw unfitFor('body', 'tier', 'Input should be a tier of this gateway')
      return settleAccount(outcome)
    },
  }),
  /** Running calls are not interrupted. */
  setState: defineAct({
    method: 'PUT',
    path: '/v1/admin/accounts/state',
    summary: 'Disable an account (its keys get 403 within a second), or take it into use again',
    scope: 'admin',
    body: {
      name: 'AdminSetAccountState',
      schema: z.looseObject({ name: nameText, state: z.enum(['active', 'disabled']) }),
      example: { name: 'customers', state: 'disabled' },
    },
    reply: actDone,
    errors: ['not_found'],
    async run({ name, state }, { database }: Place) {
      const at = state === 'disabled' ? unixSeconds() : null
      return outcomeOf(await createKeysStore(database).setDisabled(name, at))
    },
    trail: ({ name, state }, outcome) => [
      { kind: `account.${state === 'active' ? 'enable' : 'disable'}`, target: name, outcome },
    ],
    answer: settleAccount,
  }),
  /** A deleted account cannot be restored. A new account can have the same name. */
  delete: defineAct({
    method: 'DELETE',
    path: '/v1/admin/accounts',
    summary: 'Revoke the keys of an account forever and free its name; its records stay',
    scope: 'admin',
    query: z.looseObject({ name: nameText }),
    reply: actDone,
    errors: ['not_found'],
    run: async ({ name }, { database }: Place) =>
      outcomeOf(await createKeysStore(database).deleteAccount(name, unixSeconds())),
    trail: ({ name }, outcome) => [{ kind: 'account.delete', target: name, outcome }],
    answer: settleAccount,
  }),
}

/** Null if the tiers are not known: any name is then accepted. */
type Tiered = { readonly tiers: (() => readonly string[]) | null }

function outcomeOf(isFound: boolean) {
  return isFound ? 'set' : 'unknown_account'
}

function unixSeconds(): number {
  return Math.floor(Date.now() / 1000)
}

function describe({ id, name, tier, createdAt, disabledAt }: Account): AccountDescription {
  return { id, name, tier, created_at: createdAt, disabled_at: disabledAt }
}

/** Returns the last item if the page is full, otherwise null. */
export function lastOfFull<Item>(items: readonly Item[], limit: number): Item | null {
  return items.length < limit ? null : (items.at(-1) ?? null)
}

/** The reply for a successful act. Throws ApiError `not_found` for an unknown account. */
export function settleAccount(outcome: 'set' | 'erased' | 'unknown_account') {
  if (outcome === 'unknown_account')
    throw new ApiError('not_found', 'There is no account with this name')
  return { outcome: 'done' as const }
}
