import { type RawBuilder, sql } from 'kysely'
import { decodeHex } from '#attestation/bytes.ts'
import { RETENTION_SECONDS } from '../../accounts/idempotency.ts'
import { clockSeconds, type StoreClock } from '../../storage/clock.ts'
import type { Database } from '../../storage/database.ts'
import type { Erasure } from './record-content.ts'

type ErasureOrder = Pick<Erasure, 'by' | 'reason'>

/** Content that must be erased. The account is null for calls without a known account. */
export type DueContent = {
  readonly accountId: string | null
  /** Unix seconds. Later completions keep their content. */
  readonly through: number
  /** Database key of the act that erases this content. */
  readonly erasureId: number
}

/**
 * Erases requests and answers. The rows keep everything that proves the records. Every method
 * throws the driver's error.
 */
export type ErasuresStore = {
  /**
   * Erases the content of all records with this hash (hex, no prefix), of one account (null: of all
   * accounts). `found` counts these records, `erased` only the records that still had content.
   */
  eraseRecords(
    of: { readonly hash: string; readonly accountId: string | null },
    order: ErasureOrder,
  ): Promise<{ readonly found: number; readonly erased: number }>
  /**
   * Erases the content of the account's completions that finished before now. Callers can no longer
   * read this content, even in a record that is committed later. The rows contain the content until
   * `eraseDue` removes it. Returns null for an unknown account.
   */
  eraseAccount(name: string, order: ErasureOrder): Promise<{ readonly accountId: string } | null>
  /**
   * Lists the content to erase, for at most `limit` accounts after the cursor `after` (null: from
   * the first). The new cursor is null at the end. `retentionDays` applies to accounts without a
   * setting.
   */
  listDue(page: {
    readonly after: string | null
    readonly limit: number
    readonly retentionDays: number | null
  }): Promise<{ readonly due: readonly DueContent[]; readonly cursor: string | null }>
  /** The account's erased content that is still in the rows. */
  findDue(accountName: string): Promise<DueContent | null>
  /**
   * Erases the oldest due content of at most `limit` records, or of fewer if they are large.
   * Returns the number of erased records (0 at the end), or 'busy' while another process erases.
   */
  eraseDue(due: DueContent, limit: number): Promise<number | 'busy'>
  /** Deletes stored answers to calls with an Idempotency-Key, for erased accounts. */
  forgetAnswers(): Promise<number>
  /** With `days` null, the gateway's settings apply. Returns false for an unknown account. */
  setRetention(accountName: string, days: number | null): Promise<boolean>
}

/** The condition of the index records_content. */
const HAS_CONTENT = sql`(request is not null or content is not null)`

/** An enclave's clock may be ahead by this much. Times further ahead are not trusted. */
const CLOCK_SKEW_SECONDS = 300

/**
 * After this many bytes, a statement erases no further records. A record may have tens of
 * megabytes, and Postgres stores each 2 kB as a row.
 */
const ERASE_BYTES_MAX = 64 * 1024 * 1024

/** Advisory lock, so that only one process erases at a time. */
const ERASE_LOCK = 7_100_317

/**
 * The act that erased the content of a record, or all content of its account. Content of an erased
 * account counts as erased at once, but is removed from the rows later.
 */
export function erasureOf(record: string, account: string): RawBuilder<number | null> {
  const [r, o] = [sql.ref(record), sql.ref(account)]
  return sql`coalesce(${r}.erasure_id, case
    when (${r}.request is not null or ${r}.content is not null) and ${o}.erased_through >= ${r}.created_at
    then ${o}.erasure_id end)`
}

// biome-ignore lint/complexity/noExcessiveLinesPerFunction: the statements of one store
export function createErasuresStore(
  { queries }: Pick<Database, 'queries'>,
  clock: StoreClock = null,
): ErasuresStore {
  const now = () => clockSeconds(clock)
  const isWithin = (accountId: string | null) =>
    accountId === null ? sql`true` : sql`account_id = ${accountId}::uuid`

  /**
   * Returns the database key of the act for this number of days. Creates the act if it is missing.
   */
  async function retentionAct(days: number): Promise<number> {
    const reason = `kept for ${days} day${days === 1 ? '' : 's'}`
    const { rows } = await sql<{ id: number }>`
      with known as (
        select id from erasures where requested_by = 'retention' and reason = ${reason} order by id limit 1
      ), made as (
        insert into erasures (requested_by, reason, created_at)
        select 'retention', ${reason}, ${now()} where not exists (select from known) returning id
      )
      select id from known union all select id from made`.execute(queries)
    const [row] = rows
    if (row === undefined) throw new Error('expected an act of erasure')
    return row.id
  }

  return {
    async eraseRecords({ hash, accountId }, { by, reason }) {
      const isMeant = sql`hash = ${decodeHex(hash)} and ${isWithin(accountId)}`
      const { rows } = await sql<{ found: number; erased: number }>`
        with act as (
          insert into erasures (requested_by, reason, account_id, created_at)
          select ${by}, ${reason}, ${accountId}::uuid, ${now()}
          where exists (select from records where ${isMeant} and ${HAS_CONTENT}) returning id
        ), gone as (
          update records set ${removal(now(), sql`(select id from act)`)}
          where ${isMeant} and ${HAS_CONTENT} and exists (select from act) returning position
        )
        select (select count(*) from records where ${isMeant})::bigint as found,
          (select count(*) from gone)::bigint as erased`.execute(queries)
      return rows[0] ?? { found: 0, erased: 0 }
    },
    async eraseAccount(name, { by, reason }) {
      const { rows } = await sql<{ id: string }>`
        with meant as (
          select id from accounts where name = ${name}
        ), act as (
          insert into erasures (requested_by, reason, account_id, created_at)
          select ${by}, ${reason}, id, ${now()} from meant returning id
        ), newest as (
          select max(created_at) as at from records
          where account_id = (select id from meant) and ${HAS_CONTENT}
        )
        update accounts set
          erasure_id = (select id from act),
          erased_through = greatest(
            erased_through, ${now()},
            least(coalesce((select at from newest), 0), ${now()} + ${CLOCK_SKEW_SECONDS}::bigint))
        where id = (select id from meant) returning id`.execute(queries)
      return rows[0] === undefined ? null : { accountId: rows[0].id }
    },
    async listDue({ after, limit, retentionDays }) {
      // The query goes from one account to the next in the index, so the cost does not depend on
      // the number of records.
      const { rows } = await sql<DueRow>`
        with recursive owners (account_id, ordinal) as (
          (select account_id, 1 from records
            where ${HAS_CONTENT} and account_id > ${after ?? NIL_UUID}::uuid order by account_id limit 1)
          union all
          select (select r.account_id from records r
            where (r.request is not null or r.content is not null) and r.account_id > o.account_id
            order by r.account_id limit 1), o.ordinal + 1
          from owners o where o.account_id is not null and o.ordinal < ${limit}
        )
        select o.account_id, a.erased_through, a.erasure_id,
          coalesce(a.retention_days, ${retentionDays}::integer) as days,
          ${now()} - coalesce(a.retention_days, ${retentionDays}::integer)::bigint * 86400 as expired_through,
          (select created_at from records r
            where (r.request is not null or r.content is not null) and r.account_id = o.account_id
            order by created_at limit 1) as oldest
        from owners o left join accounts a on a.id = o.account_id
        where o.account_id is not null order by o.ordinal`.execute(queries)
      const isEnd = rows.length < limit
      const due: DueContent[] = []
      // Many accounts have the same retention time, so there are few acts.
      const acts = new Map<number, Promise<number>>()
      const actOf = (days: number) => {
        const act = acts.get(days) ?? retentionAct(days)
        acts.set(days, act)
        return act
      }
      for (const row of rows) due.push(...(await dueOf(row, actOf)))
      // Records without a known account come last.
      if (isEnd && retentionDays !== null) due.push(...(await dueWithoutAccount(retentionDays)))
      return { due, cursor: isEnd ? null : (rows.at(-1)?.account_id ?? null) }
    },
    async findDue(accountName) {
      const { rows } = await sql<{ id: string; erased_through: number; erasure_id: number }>`
        select a.id, a.erased_through, a.erasure_id from accounts a
        where a.name = ${accountName} and a.erased_through is not null and exists (
          select from records
          where account_id = a.id and ${HAS_CONTENT} and created_at <= a.erased_through)`.execute(
        queries,
      )
      const [row] = rows
      if (row === undefined) return null
      return { accountId: row.id, through: row.erased_through, erasureId: row.erasure_id }
    },
    async eraseDue({ accountId, through, erasureId }, limit) {
      const owner =
        accountId === null ? sql`account_id is null` : sql`account_id = ${accountId}::uuid`
      return queries.transaction().execute(async (transaction) => {
        const lock = await sql<{ mine: boolean }>`
          select pg_try_advisory_xact_lock(${ERASE_LOCK}) as mine`.execute(transaction)
        if (lock.rows[0]?.mine !== true) return 'busy'
        const { numAffectedRows = 0n } = await sql`
          update records set ${removal(now(), sql`${erasureId}::integer`)}
          where position = any (array(
            select position from (
              select position, sum(size) over (
                order by ordinal rows between unbounded preceding and 1 preceding) as before
              from (
                select position, row_number() over () as ordinal, coalesce(pg_column_size(content), 0)
                  + coalesce(pg_column_size(request), 0) + coalesce(pg_column_size(response), 0) as size
                from (
                  select position, content, request, response from records
                  where ${owner} and ${HAS_CONTENT} and created_at <= ${through}
                  order by created_at limit ${limit} for update skip locked) as due) as sized) as summed
            where coalesce(before, 0) < ${ERASE_BYTES_MAX}))`.execute(transaction)
        return Number(numAffectedRows)
      })
    },
    async forgetAnswers() {
      // Answers are kept for a day, so only accounts erased within the last day have answers here.
      const { numAffectedRows = 0n } = await sql`
        delete from idempotency_keys k using accounts a
        where a.erased_through >= ${now()} - ${RETENTION_SECONDS}::bigint and k.account_id = a.id
          and k.created_at <= a.erased_through
          and (k.answer is not null or k.sealed_answer is not null)`.execute(queries)
      return Number(numAffectedRows)
    },
    async setRetention(accountName, days) {
      const { numUpdatedRows } = await queries
        .updateTable('accounts')
        .set({ retention_days: days })
        .where('name', '=', accountName)
        .executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },
  }

  async function dueOf(
    row: DueRow,
    actOf: (days: number) => Promise<number>,
  ): Promise<readonly DueContent[]> {
    const { account_id: accountId, erased_through: erased, erasure_id: erasureId, oldest } = row
    const { days, expired_through: expired } = row
    if (oldest === null) return []
    const isErased = erased !== null && erasureId !== null && oldest <= erased
    const isExpired = days !== null && expired !== null && oldest <= expired
    return [
      ...(isErased ? [{ accountId, through: erased, erasureId }] : []),
      ...(isExpired ? [{ accountId, through: expired, erasureId: await actOf(days) }] : []),
    ]
  }

  async function dueWithoutAccount(days: number): Promise<readonly DueContent[]> {
    const { rows } = await sql<{ expired: number }>`
      select r.expired from (select ${now()} - ${days}::bigint * 86400 as expired) r
      where exists (select from records
        where account_id is null and ${HAS_CONTENT} and created_at <= r.expired)`.execute(queries)
    const [row] = rows
    if (row === undefined) return []
    return [{ accountId: null, through: row.expired, erasureId: await retentionAct(days) }]
  }
}

const NIL_UUID = '00000000-0000-0000-0000-000000000000'

type DueRow = {
  readonly account_id: string
  readonly erased_through: number | null
  readonly erasure_id: number | null
  readonly days: number | null
  readonly expired_through: number | null
  /** Null if the content was removed after the query had found the account. */
  readonly oldest: number | null
}

function removal(at: RawBuilder<number>, erasureId: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`request = null, response = null, content = null, erased_at = ${at}, erasure_id = ${erasureId}`
}
