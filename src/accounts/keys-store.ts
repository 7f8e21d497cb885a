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
  readonly revokedAt: number | null
  readonly scopes: readonly Scope[]
  /** Not valid from then on; null for never. */
  readonly expiresAt: number | null
  /** To the minute; null before the first use. */
  readonly lastUsedAt: number | null
  /** Tier of the account's limits; null for the default one. */
  readonly tier: string | null
}

/** A key that is not stored yet. */
type NewKey = Omit<StoredKey, 'accountName' | 'revokedAt' | 'lastUsedAt' | 'tier'>

/** The last use of a key is known to this, seconds. */
export const USE_INTERVAL_SECONDS = 60

/** Accounts and API keys. Every method throws the driver's error when the database fails. */
export type KeysStore = {
  /**
   * Finds the account of this name, or makes it with `account.id`; gives the one that is stored.
   */
  openAccount(account: Omit<Account, 'tier'>): Promise<Account>
  /** Gives all accounts, oldest first; those of one second in the order of their making. */
  listAccounts(): Promise<readonly Account[]>
  /**
   * Puts the account of this name into a tier, null for the default one. False when there is no
   * such account.
   */
  setTier(name: string, tier: string | null): Promise<boolean>
  /** Gives the account with this id (a uuid), or null. */
  findAccount(id: string): Promise<Account | null>
  /** Stores a key. Rejects when its id is taken. */
  addKey(key: NewKey): Promise<void>
  /** Gives the key with this public id, revoked or not, or null. */
  findKey(id: string): Promise<StoredKey | null>
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
   * Revokes a key of an account, or of any (null), for good. False when there is none with this id;
   * a key that is revoked keeps its first time.
   */
  revokeKey(id: string, revokedAt: number, accountId: string | null): Promise<boolean>
  /**
   * Notes when a key was used. Writes nothing within USE_INTERVAL_SECONDS of the last time,
   * whichever gateway wrote it.
   */
  noteUse(id: string, usedAt: number): Promise<void>
}

/** Accounts and keys on the database's shared connections. */
export function createKeysStore({ queries }: Pick<Database, 'queries'>): KeysStore {
  const selectKeys = () =>
    queries
      .selectFrom('api_keys')
      .innerJoin('accounts', 'accounts.id', 'api_keys.account_id')
      .selectAll('api_keys')
      .select(['accounts.name as account_name', 'accounts.tier'])

  return {
    async openAccount({ id, name, createdAt }) {
      await queries
        .insertInto('accounts')
        .values({ id, name, created_at: createdAt })
        .onConflict((conflict) => conflict.column('name').doNothing())
        .execute()
      const row = await queries
        .selectFrom('accounts')
        .selectAll()
        .where('name', '=', name)
        .executeTakeFirstOrThrow()
      return toAccount(row)
    },
    async findAccount(id) {
      const row = await queries
        .selectFrom('accounts')
        .selectAll()
        .where('id', '=', id)
        .executeTakeFirst()
      return row === undefined ? null : toAccount(row)
    },
    async listAccounts() {
      const rows = await queries
        .selectFrom('accounts')
        .selectAll()
        .orderBy('created_at')
        .orderBy('position')
        .execute()
      return rows.map(toAccount)
    },
    async setTier(name, tier) {
      const { numUpdatedRows } = await queries
        .updateTable('accounts')
        .set({ tier })
        .where('name', '=', name)
        .executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },
    async addKey(key) {
      await queries
        .insertInto('api_keys')
        .values({
          id: key.id,
          account_id: key.accountId,
          secret_hash: key.secretHash,
          name: key.name,
          created_at: key.createdAt,
          revoked_at: null,
          scopes: key.scopes,
          expires_at: key.expiresAt,
        })
        .execute()
    },
    async findKey(id) {
      const row = await selectKeys().where('api_keys.id', '=', id).executeTakeFirst()
      return row === undefined ? null : toKey(row)
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
    async revokeKey(id, revokedAt, accountId) {
      const update = queries
        .updateTable('api_keys')
        .set((row) => ({ revoked_at: row.fn.coalesce('revoked_at', row.val(revokedAt)) }))
        .where('id', '=', id)
      const { numUpdatedRows } = await (accountId === null
        ? update
        : update.where('account_id', '=', accountId)
      ).executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },
    async noteUse(id, usedAt) {
      await sql`
        update api_keys set last_used_at = ${usedAt}
        where id = ${id} and coalesce(last_used_at, 0) <= ${usedAt - USE_INTERVAL_SECONDS}`.execute(
        queries,
      )
    },
  }
}

function toAccount(row: Selectable<Tables['accounts']>): Account {
  return { id: row.id, name: row.name, createdAt: row.created_at, tier: row.tier }
}

type KeyRow = Selectable<Tables['api_keys']> & {
  readonly account_name: string
  readonly tier: string | null
}

function toKey(row: KeyRow): StoredKey {
  return {
    id: row.id,
    accountId: row.account_id,
    accountName: row.account_name,
    secretHash: row.secret_hash,
    name: row.name,
    createdAt: row.created_at,
    revokedAt: row.revoked_at,
    scopes: row.scopes.filter(isScope),
    expiresAt: row.expires_at,
    lastUsedAt: row.last_used_at,
    tier: row.tier,
  }
}
