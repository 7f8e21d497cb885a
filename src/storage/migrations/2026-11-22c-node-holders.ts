import { type Kysely, sql } from 'kysely'

/**
 * Which process holds the connection of a node, and which connection it is: several gateways serve
 * the nodes of one database.
 */
export async function up(database: Kysely<unknown>): Promise<void> {
  await sql`alter table nodes add column process_id uuid, add column connection_id uuid`.execute(
    database,
  )
  // State and connection were stored one after the other: a kill between them left a state alone.
  await sql`
    update nodes set state = case state
      when 'RUNNING' then 'STOPPED'
      when 'RUNNING_BENCHMARKING' then 'STOPPED_BENCHMARK_FAILED'
      when 'RUNNING_DEGRADED' then 'STOPPED_DEGRADED'
      else 'STOPPED_DISABLED' end
    where connected_since is null and state like 'RUNNING%'`.execute(database)
}

/** Drops the columns: for tests of the migration only. */
export async function down(database: Kysely<unknown>): Promise<void> {
  await sql`alter table nodes drop column connection_id, drop column process_id`.execute(database)
}
