import { type RawBuilder, type Selectable, sql } from 'kysely'
import { isScope, type Scope } from '../api/context.ts'
import type { Database } from '../storage/database.ts'
import type { Tables } from '../storage/tables.ts'

export type Account = {
  readonly id: string
  readonly name: string
  readonly createdAt: number
  /** Null for the default tier. */
  readonly tier: string | null
  /**
   * Unix seconds: from this time on, the account's keys are refused. Null if the account is
   * enabled.
   */
  readonly disabledAt: number | null
}

/** Times are Unix seconds. */
export type StoredKey = {
  readonly id: string
  readonly accountId: string
  readonly accountName: string
  /** SHA-256 of the key's text. */
  readonly secretHash: Uint8Array
  readonly name: string
  readonly createdAt: number
  /** Public id of the key that made this key. Null if the operator made it. */
  readonly createdBy: string | null
  readonly revokedAt: number | null
  readonly scopes: readonly Scope[]
  /** Null if the key never expires. */
  readonly expiresAt: number | null
  /** To the minute. Null before the first use. */
  readonly lastUsedAt: number | null
  /** Null for the default tier. */
  readonly tier: string | null
  readonly isDisabled: boolean
  /** True if the key or its account has a budget. */
  readonly isBudgeted: boolean
}

type NewKey = Omit<
  StoredKey,
  'accountName' | 'revokedAt' | 'lastUsedAt' | 'tier' | 'isDisabled' | 'isBudgeted'
>

/** `accountId`: null allows a key of any account. `kept`: a key that stays valid, or null. */
type Revocation = {
  /** Unix seconds. */
  readonly at: number
  readonly accountId: string | null
  readonly kept: string | null
}

type AccountPageQuery = { readonly limit: number; readonly cursor: string | null }

export const USE_INTERVAL_SECONDS = 60

/** Every method throws the driver's error when the database fails. */
export type KeysStore = {
  /** If the account does not exist, makes it with `account.id`. */
  openAccount(
    account: Omit<Account, 'tier' | 'disabledAt'>,
  ): Promise<Account & { readonly isNew: boolean }>
  /**
   * Newest first, without deleted accounts. The page starts after the account with the id `cursor`
   * (null: at the newest account). `unknown_cursor` if this account never existed.
   */
  pageAccounts(query: AccountPageQuery): Promise<readonly Account[] | 'unknown_cursor'>
  /** A null `tier` sets the default tier. False if no account has this name. */
  setTier(name: string, tier: string | null): Promise<boolean>
  /**
   * A null `at` enables the account. An account that is already disabled keeps its earlier time.
   * False if no account has this name.
   */
  setDisabled(name: string, at: number | null): Promise<boolean>
  /**
   * Revokes the account's keys and frees the name. The account's rows stay. False if no account has
   * this name.
   */
  deleteAccount(name: string, at: number): Promise<boolean>
  /** `id` is a uuid. Null if no account has it, or the account is deleted. */
  findAccount(id: string): Promise<Account | null>
  /** False if the key that made this key is revoked. Rejects if the id exists. */
  addKey(key: NewKey): Promise<boolean>
  /** Also finds a revoked key. Null if no key has this id. */
  findKey(id: string): Promise<StoredKey | null>
  /** Returns the keys in any order. Unknown ids are left out. */
  findKeys(ids: readonly string[]): Promise<readonly StoredKey[]>
  /** Keys that expired or were revoked before `endedSince` (Unix seconds) do not count. */
  countKeys(accountId: string, endedSince: number): Promise<number>
  /** Returns the keys of the account (null: of all accounts) in the order of creation. */
  listKeys(accountId: string | null): Promise<readonly StoredKey[]>
  /**
   * Revokes forever a key of the account (null: of any account), the keys that this key made for
   * the same account, the keys that those keys made, and so on. Of these made keys, `kept` and the
   * keys that `kept` made stay valid. Returns the ids of the keys that were valid before, or null
   * if no key has this id.
   */
  revokeKey(id: string, revocation: Revocation): Promise<readonly string[] | null>
  /** Does nothing if the last recorded use was within USE_INTERVAL_SECONDS. */
  recordUse(id: string, usedAt: number): Promise<void>
}

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
      // Locks the row of the key that creates the new key. Thus a statement that revokes the
      // creator also finds the new key.
      const { rows } = await sql`
        with creator as (
          select from api_keys where id = ${key.createdBy}::text and revoked_at is null for share
        )
        insert into api_keys (id, account_id, secret_hash, name, created_at, scopes, expires_at, made_by)
        select ${key.id}::text, ${key.accountId}::uuid, ${key.secretHash}::bytea, ${key.name}::text,
          ${key.createdAt}::bigint, ${key.scopes}::text[], ${key.expiresAt}::bigint, ${key.createdBy}::text
        where ${key.createdBy === null}::boolean or exists (select from creator)
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
      // Runs the statement again until it revokes no further key, because a key can make another
      // key while the statement runs.
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

/** Revokes only keys that are stored when the statement starts. */
async function revokeFamily(
  queries: Database['queries'],
  id: string,
  { at, accountId, kept }: Revocation,
): Promise<readonly { readonly id: string; readonly is_new: boolean }[]> {
  const { rows } = await sql<{ readonly id: string; readonly is_new: boolean }>`
    with recursive ${keyFamily(id, { accountId, kept })}
    update api_keys set revoked_at = coalesce(api_keys.revoked_at, ${at}::bigint)
    from family, api_keys before where api_keys.id = family.id and before.id = family.id
    returning api_keys.id, before.revoked_at is null as is_new`.execute(queries)
  return rows
}

/**
 * The common table expression `family` (for `with recursive`): the key, the keys that it made for
 * its account, the keys that those made, and so on. Without the key `kept`, if it is among those.
 */
export function keyFamily(
  id: string,
  {
    accountId = null,
    kept = null,
  }: { readonly accountId?: string | null; readonly kept?: string | null } = {},
): RawBuilder<unknown> {
  return sql`family as (
      select id, account_id from api_keys
      where id = ${id}::text and (${accountId}::uuid is null or account_id = ${accountId}::uuid)
      union
      select child.id, child.account_id from api_keys child join family
        on child.made_by = family.id and child.account_id = family.account_id
      where child.id is distinct from ${kept}::text
    )`
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
    createdBy: row.made_by,
    // A key that was made while its account was being deleted counts as revoked.
    revokedAt: row.revoked_at ?? row.account_deleted_at,
    scopes: row.scopes.filter(isScope),
    expiresAt: row.expires_at,
    lastUsedAt: row.last_used_at,
    tier: row.tier,
    isDisabled: row.account_disabled_at !== null,
    isBudgeted: row.is_budgeted,
  }
}
