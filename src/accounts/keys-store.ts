import { type Selectable, sql } from 'kysely'
import { isScope, type Scope } from '../api/context.ts'
import type { Database } from '../storage/database.ts'
import type { Tables } from '../storage/tables.ts'

/** A customer. */
export type Account = {
  readonly id: string
  readonly name: string
  readonly createdAt: number
  /** Tier of its limits; null for the default one. */
  readonly tier: string | null
  /** Since when its keys are refused, Unix seconds; null while they are not. */
  readonly disabledAt: number | null
}

/**
 * An API key as it is stored: its public id, and the digest of the whole key. Times are Unix
 * seconds.
 */
export type StoredKey = {
  readonly id: string
  readonly accountId: string
  readonly accountName: string
  /** SHA-256 of the key's text. */
  readonly secretHash: Uint8Array
  readonly name: string
  readonly createdAt: number
  /** Public id of the key that made it; null when the operator did. */
  readonly madeBy: string | null
  readonly revokedAt: number | null
  readonly scopes: readonly Scope[]
  /** Not valid from then on; null for never. */
  readonly expiresAt: number | null
  /** To the minute; null before the first use. */
  readonly lastUsedAt: number | null
  /** Tier of the account's limits; null for the default one. */
  readonly tier: string | null
  /** Whether its account is disabled. */
  readonly isDisabled: boolean
  /** Whether it, or its account, has a budget. */
  readonly isBudgeted: boolean
}

/** A key that is not stored yet. */
type NewKey = Omit<
  StoredKey,
  'accountName' | 'revokedAt' | 'lastUsedAt' | 'tier' | 'isDisabled' | 'isBudgeted'
>

/** How a key is revoked. `accountId` null: a key of any account. `kept` null: no key stays. */
export type Revocation = {
  /** Unix seconds. */
  readonly at: number
  readonly accountId: string | null
  readonly kept: string | null
}

/** A page of accounts. */
export type AccountPageQuery = { readonly limit: number; readonly cursor: string | null }

/** The last use of a key is known to this, seconds. */
export const USE_INTERVAL_SECONDS = 60

/** Accounts and API keys. Every method throws the driver's error when the database fails. */
export type KeysStore = {
  /**
   * Finds the account of this name, or makes it with `account.id`; gives the one that is stored.
   */
  openAccount(
    account: Omit<Account, 'tier' | 'disabledAt'>,
  ): Promise<Account & { readonly isNew: boolean }>
  /**
   * Gives all accounts that are not deleted, oldest first; those of one second in the order of
   * their making.
   */
  listAccounts(): Promise<readonly Account[]>
  /**
   * Gives accounts that are not deleted, newest first, from the one behind `cursor` on (an
   * account's id; null: the newest). `unknown_cursor` when there never was such an account.
   */
  pageAccounts(query: AccountPageQuery): Promise<readonly Account[] | 'unknown_cursor'>
  /**
   * Puts the account of this name into a tier, null for the default one. False when there is no
   * such account.
   */
  setTier(name: string, tier: string | null): Promise<boolean>
  /**
   * Disables the account of this name, or ends that (null). False when there is no such account. An
   * account that is disabled already keeps its first time.
   */
  setDisabled(name: string, at: number | null): Promise<boolean>
  /**
   * Revokes the keys of the account of this name, and frees its name; its rows stay. False when
   * there is no such account.
   */
  deleteAccount(name: string, at: number): Promise<boolean>
  /** Gives the account with this id (a uuid), or null; null also for one that is deleted. */
  findAccount(id: string): Promise<Account | null>
  /** Stores a key. False when the key that made it is revoked; rejects when its id is taken. */
  addKey(key: NewKey): Promise<boolean>
  /** Gives the key with this public id, revoked or not, or null. */
  findKey(id: string): Promise<StoredKey | null>
  /** The same of several, in any order; those that are not there are left out. */
  findKeys(ids: readonly string[]): Promise<readonly StoredKey[]>
  /**
   * Counts the keys of an account but those that ended, revoked or expired, before a time (Unix
   * seconds).
   */
  countKeys(accountId: string, endedSince: number): Promise<number>
  /**
   * Gives the keys of one account, or all (null), oldest first; those of one second in the order of
   * their making.
   */
  listKeys(accountId: string | null): Promise<readonly StoredKey[]>
  /**
   * Revokes a key of an account, or of any (null), forever, and with it the keys of its account
   * that it made, and that those made; except `kept` and the keys that it made. Gives the ids of
   * keys that were valid till then, or null when no key has this id. A key that is revoked already
   * keeps its first time.
   */
  revokeKey(id: string, revocation: Revocation): Promise<readonly string[] | null>
  /**
   * Notes when a key was used. Writes nothing within USE_INTERVAL_SECONDS of the last time,
   * whichever gateway wrote it.
   */
  recordUse(id: string, usedAt: number): Promise<void>
}

/** Accounts and keys on the database's shared connections. */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: the statements of one store
export function createKeysStore({ queries }: Pick<Database, 'queries'>): KeysStore {
  const selectKeys = () =>
    queries
      .selectFrom('api_keys')
      .innerJoin('accounts', 'accounts.id', 'api_keys.account_id')
      .selectAll('api_keys')
      .select([
        'accounts.name as account_name',
        'accounts.tier',
        'accounts.disabled_at as account_disabled_at',
        'accounts.deleted_at as account_deleted_at',
        sql<boolean>`exists (select from budgets b where b.account_id = api_keys.account_id
          and b.key_id in ('', api_keys.id))`.as('is_budgeted'),
      ])

  return {
    async openAccount({ id, name, createdAt }) {
      const { numInsertedOrUpdatedRows } = await queries
        .insertInto('accounts')
        .values({ id, name, created_at: createdAt })
        .onConflict((conflict) => conflict.column('name').doNothing())
        .executeTakeFirstOrThrow()
      const row = await queries
        .selectFrom('accounts')
        .selectAll()
        .where('name', '=', name)
        .executeTakeFirstOrThrow()
      return { ...toAccount(row), isNew: (numInsertedOrUpdatedRows ?? 0n) > 0n }
    },
    async findAccount(id) {
      const row = await queries
        .selectFrom('accounts')
        .selectAll()
        .where('id', '=', id)
        .where('deleted_at', 'is', null)
        .executeTakeFirst()
      return row === undefined ? null : toAccount(row)
    },
    async listAccounts() {
      const rows = await queries
        .selectFrom('accounts')
        .selectAll()
        .where('deleted_at', 'is', null)
        .orderBy('created_at')
        .orderBy('position')
        .execute()
      return rows.map(toAccount)
    },
    async pageAccounts({ limit, cursor }) {
      const page = queries
        .selectFrom('accounts')
        .selectAll()
        .where('deleted_at', 'is', null)
        .orderBy('position', 'desc')
        .limit(limit)
      if (cursor === null) return (await page.execute()).map(toAccount)
      const last = await queries
        .selectFrom('accounts')
        .select('position')
        .where('id', '=', cursor)
        .executeTakeFirst()
      if (last === undefined) return 'unknown_cursor'
      return (await page.where('position', '<', last.position).execute()).map(toAccount)
    },
    async setTier(name, tier) {
      const { numUpdatedRows } = await queries
        .updateTable('accounts')
        .set({ tier })
        .where('name', '=', name)
        .where('deleted_at', 'is', null)
        .executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },
    async setDisabled(name, at) {
      const { numUpdatedRows } = await queries
        .updateTable('accounts')
        .set((row) => ({
          disabled_at: at === null ? null : row.fn.coalesce('disabled_at', row.val(at)),
        }))
        .where('name', '=', name)
        .where('deleted_at', 'is', null)
        .executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },
    async deleteAccount(name, at) {
      const { rows } = await sql`
        with gone as (
          update accounts set deleted_at = ${at}::bigint, former_name = name, name = 'deleted ' || id::text
          where name = ${name} and deleted_at is null returning id
        ), ended as (
          update api_keys set revoked_at = coalesce(revoked_at, ${at}::bigint)
          where account_id in (select id from gone)
        )
        select id from gone`.execute(queries)
      return rows.length > 0
    },
    async addKey(key) {
      // The maker's row is locked, so that a statement that revokes it finds this key.
      const { rows } = await sql`
        with maker as (
          select from api_keys where id = ${key.madeBy}::text and revoked_at is null for share
        )
        insert into api_keys (id, account_id, secret_hash, name, created_at, scopes, expires_at, made_by)
        select ${key.id}::text, ${key.accountId}::uuid, ${key.secretHash}::bytea, ${key.name}::text,
          ${key.createdAt}::bigint, ${key.scopes}::text[], ${key.expiresAt}::bigint, ${key.madeBy}::text
        where ${key.madeBy === null}::boolean or exists (select from maker)
        returning id`.execute(queries)
      return rows.length > 0
    },
    async findKey(id) {
      const row = await selectKeys().where('api_keys.id', '=', id).executeTakeFirst()
      return row === undefined ? null : toKey(row)
    },
    async findKeys(ids) {
      const rows = await selectKeys()
        .where(sql<boolean>`api_keys.id = any(${ids}::text[])`)
        .execute()
      return rows.map(toKey)
    },
    async countKeys(accountId, endedSince) {
      const { rows } = await sql<{ count: number }>`
        select count(*)::bigint as count from api_keys
        where account_id = ${accountId}::uuid and coalesce(least(revoked_at, expires_at) >= ${endedSince}::bigint, true)`.execute(
        queries,
      )
      return rows[0]?.count ?? 0
    },
    async listKeys(accountId) {
      const keys = selectKeys().orderBy('api_keys.created_at').orderBy('api_keys.position')
      const rows = await (accountId === null
        ? keys
        : keys.where('account_id', '=', accountId)
      ).execute()
      return rows.map(toKey)
    },
    async revokeKey(id, revocation) {
      const revoked: string[] = []
      // Once more, until no key is found that one of these was just making.
      for (;;) {
        const family = await revokeFamily(queries, id, revocation)
        if (family.length === 0) return null
        const ended = family.filter(({ is_new: isNew }) => isNew)
        if (ended.length === 0) return revoked
        revoked.push(...ended.map((row) => row.id))
      }
    },
    async recordUse(id, usedAt) {
      await sql`
        update api_keys set last_used_at = ${usedAt}
        where id = ${id} and coalesce(last_used_at, 0) <= ${usedAt - USE_INTERVAL_SECONDS}`.execute(
        queries,
      )
    },
  }
}

/** Revokes a key and the keys of its account that it made, and theirs, as far as they are there. */
async function revokeFamily(
  queries: Database['queries'],
  id: string,
  { at, accountId, kept }: Revocation,
): Promise<readonly { readonly id: string; readonly is_new: boolean }[]> {
  const { rows } = await sql<{ readonly id: string; readonly is_new: boolean }>`
    with recursive family as (
      select id, account_id from api_keys
      where id = ${id}::text and (${accountId}::uuid is null or account_id = ${accountId}::uuid)
      union
      select made.id, made.account_id from api_keys made join family
        on made.made_by = family.id and made.account_id = family.account_id
      where made.id is distinct from ${kept}::text
    )
    update api_keys set revoked_at = coalesce(api_keys.revoked_at, ${at}::bigint)
    from family, api_keys before where api_keys.id = family.id and before.id = family.id
    returning api_keys.id, before.revoked_at is null as is_new`.execute(queries)
  return rows
}

function toAccount(row: Selectable<Tables['accounts']>): Account {
  return {
    id: row.id,
    name: row.name,
    createdAt: row.created_at,
    tier: row.tier,
    disabledAt: row.disabled_at,
  }
}

type KeyRow = Selectable<Tables['api_keys']> & {
  readonly account_name: string
  readonly tier: string | null
  readonly account_disabled_at: number | null
  readonly account_deleted_at: number | null
  readonly is_budgeted: boolean
}

function toKey(row: KeyRow): StoredKey {
  return {
    id: row.id,
    accountId: row.account_id,
    accountName: row.account_name,
    secretHash: row.secret_hash,
    name: row.name,
    createdAt: row.created_at,
    madeBy: row.made_by,
    // A key that was being made while its account was deleted is none either.
    revokedAt: row.revoked_at ?? row.account_deleted_at,
    scopes: row.scopes.filter(isScope),
    expiresAt: row.expires_at,
    lastUsedAt: row.last_used_at,
    tier: row.tier,
    isDisabled: row.account_disabled_at !== null,
    isBudgeted: row.is_budgeted,
  }
}
