import { type RawBuilder, sql } from 'kysely'

/** Gives Unix seconds. Null: the database's clock, which all gateways share. */
export type StoreClock = (() => number) | null

/** Returns the clock's time as an SQL value, or SQL's null for the database's clock. */
export function clockArgument(clock: StoreClock): RawBuilder<number | null> {
  return sql`${clock === null ? null : Math.floor(clock())}::bigint`
}

/** Returns an SQL expression for the present time in Unix seconds. */
export function clockSeconds(clock: StoreClock): RawBuilder<number> {
  return clock === null
    ? sql`floor(extract(epoch from clock_timestamp()))::bigint`
    : sql`${Math.floor(clock())}::bigint`
}
