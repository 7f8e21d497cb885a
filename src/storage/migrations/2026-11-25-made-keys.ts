import { type Kysely, sql } from 'kysely'

/** Which key made a key, and the scope to make keys. */
export async function up(db: Kysely<unknown>): Promise<void> {
  // Null for a key that the operator made, or that was made before. No reference: a key that made
  // others is never deleted.
  await sql`alter table api_keys add column made_by text`.execute(db)
  await sql`create index api_keys_made_by on api_keys (made_by) where made_by is not null`.execute(
    db,
  )
  await setScopes(db, ['inference', 'nodes', 'history:all', 'keys', 'admin'])
  // Keys made before could make keys, and keep that.
  await sql`
    update api_keys set scopes = scopes || '{keys}'
    where revoked_at is null and not 'keys' = any(scopes)`.execute(db)
}

/** Drops all that `up` made: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`update api_keys set scopes = array_remove(scopes, 'keys')`.execute(db)
  await setScopes(db, ['inference', 'nodes', 'history:all', 'admin'])
  await sql`alter table api_keys drop column made_by`.execute(db)
}

async function setScopes(db: Kysely<unknown>, scopes: readonly string[]): Promise<void> {
  const known = sql.join(scopes.map((scope) => sql.lit(scope)))
  await sql`
    alter table api_keys
      drop constraint api_keys_scopes_check,
      add constraint api_keys_scopes_check check (scopes <@ array[${known}])`.execute(db)
}
