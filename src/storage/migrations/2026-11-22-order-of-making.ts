import { type Kysely, sql } from 'kysely'

/** Tables whose rows are listed by `created_at`, which is in whole seconds. */
const TABLES = ['accounts', 'api_keys', 'nodes', 'node_benchmarks'] as const

/**
 * A position for what is listed in the order of its making: it decides between rows of one second.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const table of TABLES) await addPosition(db, table)
  await sql`drop index nodes_account`.execute(db)
  await sql`create index nodes_account on nodes (account_id, created_at, position)`.execute(db)
}

/** Drops the positions: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`drop index nodes_account`.execute(db)
  await sql`create index nodes_account on nodes (account_id, created_at, node_id)`.execute(db)
  for (const table of TABLES)
    await sql`alter table ${sql.table(table)} drop column position`.execute(db)
}

/**
 * Rows that are there already are numbered by their seconds, and within one by their place in the
 * table, which is the order of insertion of rows that were never updated. The first statement locks
 * the table until the migration is over.
 */
async function addPosition(db: Kysely<unknown>, table: (typeof TABLES)[number]): Promise<void> {
  const name = sql.table(table)
  await sql`alter table ${name} add column position bigint`.execute(db)
  await sql`
    update ${name} as numbered set position = ordered.position
    from (select ctid as place, row_number() over (order by created_at, ctid) as position from ${name}) as ordered
    where numbered.ctid = ordered.place`.execute(db)
  await sql`
    alter table ${name}
      alter column position set not null,
      alter column position add generated always as identity`.execute(db)
  await sql`
    select setval(pg_get_serial_sequence(${table}, 'position'), 1 + (select count(*) from ${name}), false)`.execute(
    db,
  )
}
