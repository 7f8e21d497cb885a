import { type RawBuilder, sql } from 'kysely'

/**
 * Unix seconds for a statement, or null for the database's own clock, which is one for all
 * gateways.
 */
export type StoreClock = (() => number) | null

/**
 * The clock's reading as an SQL value, null for the database's own; for functions that take it so.
 */
export function clockArgument(clock: StoreClock): RawBuilder<number | null> {
  return sql`${clock === null ? null : Math.floor(clock())}::bigint`
}

/** Now, in Unix seconds, as an SQL expression. */
export function clockSeconds(clock: StoreClock): RawBuilder<number> {
  return clock === null
    ? sql`floor(extract(epoch from clock_timestamp()))::bigint`
    : sql`${Math.floor(clock())}::bigint`
}
