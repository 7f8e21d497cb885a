import { type RawBuilder, sql } from 'kysely'

/*
 * A head has one anchor, whose hash its records carry, and others only when that one's nonce was
 * taken by another transaction: each of these says which the first was (origin_*), and how many
 * were before it (attempt). These fragments read such a sequence; `first` is the alias of its first
 * anchor's row.
 */

/** The hashes of the anchors after the first, as `parseHashes` reads them. */
export function laterHashes(first: string): RawBuilder<string | null> {
  return sql`(
    select string_agg(encode(x.tx_hash, 'hex'), ',' order by x.attempt) from anchors x
    where x.attempt > 0 and x.origin_relayer = ${sql.ref(`${first}.relayer`)}
      and x.origin_nonce = ${sql.ref(`${first}.nonce`)})`
}

/**
 * The current anchor of a sequence: the earliest that is in a block, else the last, which can still
 * be mined. `row` is the alias of any of its anchors. With `when`, only if that holds. Two lookups
 * of an index: one lookup by two conditions reads every anchor while there are no statistics.
 */
export function currentAnchor(row: string, when: RawBuilder<boolean> = sql`true`): RawBuilder<unknown> {
  const { relayer, nonce } = firstOf(row)
  return sql`(
    select c.* from (
      select x.* from anchors x where ${when} and x.relayer = ${relayer} and x.nonce = ${nonce}
      union all
      select x.* from anchors x
      where ${when} and x.attempt > 0 and x.origin_relayer = ${relayer} and x.origin_nonce = ${nonce}
    ) c
    order by c.state in ('mined', 'confirmed') desc,
      case when c.state in ('mined', 'confirmed') then c.attempt else -c.attempt end
    limit 1)`
}

/**
 * The hashes of the anchors before the one of alias `current`, as `parseHashes` reads them; null
 * when it is the first.
 */
export function earlierHashes(current: string): RawBuilder<string | null> {
  const of = (column: string) => sql.ref(`${current}.${column}`)
  return sql`case when ${of('attempt')} > 0 then (
    select string_agg(encode(x.tx_hash, 'hex'), ',' order by x.attempt) from anchors x
    where x.attempt < ${of('attempt')} and (
      (x.relayer = ${of('origin_relayer')} and x.nonce = ${of('origin_nonce')})
      or (x.attempt > 0 and x.origin_relayer = ${of('origin_relayer')} and x.origin_nonce = ${of('origin_nonce')})))
  end`
}

/** Whether another anchor was made in the place of the one of alias `row`. */
export function hasSuccessor(row: string): RawBuilder<boolean> {
  const { relayer, nonce } = firstOf(row)
  // attempt > 0: so that the partial index serves.
  return sql`exists (
    select from anchors s
    where s.attempt = ${sql.ref(`${row}.attempt`)} + 1 and s.attempt > 0
      and s.origin_relayer = ${relayer} and s.origin_nonce = ${nonce})`
}

/** The key of the first anchor of the sequence of `row`. */
function firstOf(row: string): {
  readonly relayer: RawBuilder<unknown>
  readonly nonce: RawBuilder<unknown>
} {
  const of = (column: string) => sql.ref(`${row}.${column}`)
  return {
    relayer: sql`coalesce(${of('origin_relayer')}, ${of('relayer')})`,
    nonce: sql`coalesce(${of('origin_nonce')}, ${of('nonce')})`,
  }
}

/** Hashes, 0x, of what laterHashes and earlierHashes give. */
export function parseHashes(list: string | null): readonly string[] {
  return list === null ? [] : list.split(',').map((hash) => `0x${hash}`)
}

/** When the first anchor of the sequence of `row` was stored: its head was committed then. */
export function firstCreatedAt(row: string): RawBuilder<number> {
  const of = (column: string) => sql.ref(`${row}.${column}`)
  return sql`case when ${of('attempt')} = 0 then ${of('created_at')} else (
    select f.created_at from anchors f where f.relayer = ${of('origin_relayer')} and f.nonce = ${of('origin_nonce')})
  end`
}
