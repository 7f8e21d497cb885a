import type { Selectable } from 'kysely'
import type { Database } from './database.ts'
import type { Tables } from './tables.ts'

/** A customer. */
export type Account = { readonly id: string; readonly name: string; readonly createdAt: number }

/** An API key as it is stored: its public id, and the digest of the whole key. Times are Unix seconds. */
export type StoredKey = {
  readonly id: string
  readonly accountId: string
  readonly accountName: string
  /** SHA-256 of the key's text. */
  readonly secretHash: Uint8Array
  readonly name: string
  readonly createdAt: number
  readonly revokedAt: number | null
}

/** Accounts and API keys. Every method throws the driver's error when the database fails. */
export type KeysStore = {
  /** Finds the account of this name, or makes it with `account.id`; gives the one that is stored. */
  openAccount(account: Account): Promise<Account>
  /** Stores a key. Rejects when its id is taken. */
  addKey(key: Omit<StoredKey, 'accountName' | 'revokedAt'>): Promise<void>
  /** Gives the key with this public id, revoked or not, or null. */
  findKey(id: string): Promise<StoredKey | null>
  /** Gives all keys, oldest first. */
  listKeys(): Promise<readonly StoredKey[]>
  /** Revokes a key for good. False when there is none with this id; a key that is revoked keeps its first time. */
  revokeKey(id: string, revokedAt: number): Promise<boolean>
}

/** Accounts and keys on the database's shared connections. */
export function createKeysStore({ queries }: Pick<Database, 'queries'>): KeysStore {
  const selectKeys = () =>
    queries
      .selectFrom('api_keys')
      .innerJoin('accounts', 'accounts.id', 'api_keys.account_id')
      .selectAll('api_keys')
      .select('accounts.name as account_name')

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
      return { id: row.id, name: row.name, createdAt: row.created_at }
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
        })
        .execute()
    },
    async findKey(id) {
      const row = await selectKeys().where('api_keys.id', '=', id).executeTakeFirst()
      return row === undefined ? null : toKey(row)
    },
    async listKeys() {
      const rows = await selectKeys().orderBy('api_keys.created_at').orderBy('api_keys.id').execute()
      return rows.map(toKey)
    },
    async revokeKey(id, revokedAt) {
      const { numUpdatedRows } = await queries
        .updateTable('api_keys')
        .set((row) => ({ revoked_at: row.fn.coalesce('revoked_at', row.val(revokedAt)) }))
        .where('id', '=', id)
        .executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },
  }
}

type KeyRow = Selectable<Tables['api_keys']> & { readonly account_name: string }

function toKey(row: KeyRow): StoredKey {
  return {
    id: row.id,
    accountId: row.account_id,
    accountName: row.account_name,
    secretHash: row.secret_hash,
    name: row.name,
    createdAt: row.created_at,
    revokedAt: row.revoked_at,
  }
}
