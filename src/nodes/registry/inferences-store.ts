import { type Selectable, sql } from 'kysely'
import type { Database } from '../../storage/database.ts'
import type { Queries, Tables } from '../../storage/tables.ts'

export const DAY_SECONDS = 86_400

export const COMPLETED_MAX = 10

/**
 * One call that a node served completely. The node claims the token counts; the gateway measured
 * the time.
 */
export type Inference = {
  /** A UUID. Adding the same id again has no effect. */
  readonly id: string
  readonly nodeId: string
  /** The caller's account. Null for a probe. */
  readonly accountId: string | null
  readonly model: string
  readonly promptTokens: number
  readonly completionTokens: number
  readonly totalTokens: number
  /** Null when the time was not measured. */
  readonly timeToFirstTokenMs: number | null
  /** When the call ended, Unix seconds. */
  readonly createdAt: number
}

type CompletedInference = Pick<
  Inference,
  'model' | 'promptTokens' | 'completionTokens' | 'totalTokens' | 'createdAt'
>

export type NodeStats = {
  readonly requestsServedDay: number
  /** Average over the last day. Null when no call was measured. */
  readonly averageTimeToFirstTokenMs: number | null
  /** The last COMPLETED_MAX completions, newest first. */
  readonly completed: readonly CompletedInference[]
}

/** `start`: Unix seconds. */
export type NodeHour = {
  readonly start: number
  readonly requests: number
  readonly promptTokens: number
  readonly completionTokens: number
  /**
   * Percentiles over the measured calls among the last FIRST_TOKENS_MAX calls of the hour. Null: no
   * call was measured.
   */
  readonly firstTokenMs: { readonly p50: number; readonly p95: number } | null
}

export const FIRST_TOKENS_MAX = 200

/**
 * The calls that nodes served. Times are Unix seconds. The last day is the DAY_SECONDS before
 * `now`. Every method throws the driver's error when the database fails.
 */
export type InferencesStore = {
  /**
   * Adds inferences and counts them for their nodes (`requestsServed`), in one statement, which
   * succeeds or fails as a whole. A batch with an unknown outcome may be added again, because each
   * id counts once.
   */
  add(rows: readonly Inference[]): Promise<void>
  /** Reads only 24 hourly sums and the rows of a partial hour. */
  stats(nodeId: string, now: number): Promise<NodeStats>
  /**
   * The hours with calls, oldest first, from the hour that begins at `from`. Reads up to
   * FIRST_TOKENS_MAX rows per hour, so the caller must limit the number of hours.
   */
  history(nodeId: string, from: number): Promise<readonly NodeHour[]>
  /** Calls of the last day, for each node of the account that served calls. */
  servedDay(accountId: string, now: number): Promise<ReadonlyMap<string, number>>
  /** Counts the calls of the last day. This day begins at a full minute. */
  network(now: number): Promise<{ readonly inferencesDay: number }>
  /**
   * Removes inferences and hourly sums that are older than `before`. Keeps the last COMPLETED_MAX
   * inferences of each node, and all data of the day before `now`.
   */
  prune(times: { readonly before: number; readonly now: number }): Promise<void>
}

export function createInferencesStore({ queries }: Pick<Database, 'queries'>): InferencesStore {
  return {
    add: (rows) => addInferences(queries, rows),
    async stats(nodeId, now) {
      const [day, completed] = await Promise.all([
        readDay(queries, nodeId, now),
        listCompleted(queries, nodeId),
      ])
      return { ...day, completed }
    },
    history: (nodeId, from) => readHistory(queries, nodeId, from),
    async servedDay(accountId, now) {
      const { from, firstHour } = dayOf(now)
      const { rows } = await sql<{ node_id: string; requests: number }>`
        select n.node_id, (
            select coalesce(sum(h.requests), 0) from node_hours h
            where h.node_id = n.node_id and h.hour_at >= ${firstHour}::bigint)::bigint + (
            select count(*) from inferences i
            where i.node_id = n.node_id and i.created_at > ${from}::bigint and i.created_at < ${firstHour}::bigint)
          as requests
        from nodes n where n.account_id = ${accountId}::uuid`.execute(queries)
      return new Map(
        rows.filter(({ requests }) => requests > 0).map((row) => [row.node_id, row.requests]),
      )
    },
    async network(now) {
      const firstMinute = firstAfter(now - DAY_SECONDS, MINUTE_SECONDS)
      const { rows } = await sql<{ requests: number }>`
        select coalesce(sum(requests), 0)::bigint as requests from network_minutes
        where minute_at >= ${firstMinute}::bigint`.execute(queries)
      return { inferencesDay: rows[0]?.requests ?? 0 }
    },
    prune: (times) => prune(queries, times),
  }
}

export const HOUR_SECONDS = 3_600
const MINUTE_SECONDS = 60

/** The day begins just after `from`. Its first whole hour is at `firstHour`. */
function dayOf(now: number): { readonly from: number; readonly firstHour: number } {
  const from = now - DAY_SECONDS
  return { from, firstHour: firstAfter(from, HOUR_SECONDS) }
}

/** Returns the first multiple of `step` that is greater than `at`. */
function firstAfter(at: number, step: number): number {
  return (Math.floor(at / step) + 1) * step
}

/** Largest sum of claimed token counts. JavaScript could not represent a larger sum exactly. */
const TOKENS_MAX = sql`${Number.MAX_SAFE_INTEGER}::bigint`

async function addInferences(queries: Queries, rows: readonly Inference[]): Promise<void> {
  if (rows.length === 0) return
  await sql`
    with fresh as (
      insert into inferences (id, node_id, account_id, model, prompt_tokens, completion_tokens, total_tokens,
        time_to_first_token_ms, created_at)
      select * from unnest(
        ${rows.map((row) => row.id)}::uuid[], ${rows.map((row) => row.nodeId)}::text[],
        ${rows.map((row) => row.accountId)}::uuid[], ${rows.map((row) => row.model)}::text[],
        ${rows.map((row) => row.promptTokens)}::bigint[], ${rows.map((row) => row.completionTokens)}::bigint[],
        ${rows.map((row) => row.totalTokens)}::bigint[],
        ${rows.map((row) => row.timeToFirstTokenMs)}::double precision[],
        ${rows.map((row) => row.createdAt)}::bigint[])
      on conflict (id) do nothing
      returning node_id, time_to_first_token_ms as first_token_ms, created_at, prompt_tokens, completion_tokens),
    hours as (
      insert into node_hours (node_id, hour_at, requests, first_tokens, first_token_ms, prompt_tokens, completion_tokens)
      select node_id, created_at - created_at % ${HOUR_SECONDS}::bigint as hour_at, count(*), count(first_token_ms),
        coalesce(sum(first_token_ms), 0), least(sum(prompt_tokens), ${TOKENS_MAX}), least(sum(completion_tokens), ${TOKENS_MAX})
      from fresh group by 1, 2 order by 1, 2
      on conflict (node_id, hour_at) do update set requests = node_hours.requests + excluded.requests,
        first_tokens = node_hours.first_tokens + excluded.first_tokens,
        first_token_ms = node_hours.first_token_ms + excluded.first_token_ms,
        prompt_tokens = least(node_hours.prompt_tokens + excluded.prompt_tokens, ${TOKENS_MAX}),
        completion_tokens = least(node_hours.completion_tokens + excluded.completion_tokens, ${TOKENS_MAX})),
    minutes as (
      insert into network_minutes (minute_at, requests)
      select created_at - created_at % ${MINUTE_SECONDS}::bigint, count(*) from fresh group by 1 order by 1
      on conflict (minute_at) do update set requests = network_minutes.requests + excluded.requests)
    update nodes set requests_served = requests_served + served.requests
    from (select node_id, count(*) as requests from fresh group by node_id) served
    where nodes.node_id = served.node_id`.execute(queries)
}

async function readDay(
  queries: Queries,
  nodeId: string,
  now: number,
): Promise<Omit<NodeStats, 'completed'>> {
  const { from, firstHour } = dayOf(now)
  const { rows } = await sql<{ requests: number; average: number | null }>`
    select sum(requests)::bigint as requests,
      (sum(first_token_ms) / nullif(sum(first_tokens), 0))::double precision as average
    from (
      select coalesce(sum(requests), 0) as requests, coalesce(sum(first_tokens), 0) as first_tokens,
        coalesce(sum(first_token_ms), 0) as first_token_ms
      from node_hours where node_id = ${nodeId} and hour_at >= ${firstHour}::bigint
      union all
      select count(*), count(time_to_first_token_ms), coalesce(sum(time_to_first_token_ms), 0)
      from inferences
      where node_id = ${nodeId} and created_at > ${from}::bigint and created_at < ${firstHour}::bigint) parts
    `.execute(queries)
  return {
    requestsServedDay: rows[0]?.requests ?? 0,
    averageTimeToFirstTokenMs: rows[0]?.average ?? null,
  }
}

async function readHistory(
  queries: Queries,
  nodeId: string,
  from: number,
): Promise<readonly NodeHour[]> {
  const { rows } = await sql<{
    hour_at: number
    requests: number
    prompt_tokens: number
    completion_tokens: number
    p50: number | null
    p95: number | null
  }>`
    select h.hour_at, h.requests, h.prompt_tokens, h.completion_tokens, t.p50, t.p95
    from node_hours h cross join lateral (
      select percentile_cont(0.5) within group (order by time_to_first_token_ms) as p50,
        percentile_cont(0.95) within group (order by time_to_first_token_ms) as p95
      from (
        select time_to_first_token_ms from inferences i
        where i.node_id = h.node_id and i.created_at >= h.hour_at and i.created_at < h.hour_at + ${HOUR_SECONDS}::bigint
        order by i.created_at desc, i.position desc limit ${FIRST_TOKENS_MAX}::integer) last) t
    where h.node_id = ${nodeId} and h.hour_at >= ${from}::bigint
    order by h.hour_at`.execute(queries)
  return rows.map((row) => ({
    start: row.hour_at,
    requests: row.requests,
    promptTokens: row.prompt_tokens,
    completionTokens: row.completion_tokens,
    firstTokenMs: row.p50 === null || row.p95 === null ? null : { p50: row.p50, p95: row.p95 },
  }))
}

async function listCompleted(
  queries: Queries,
  nodeId: string,
): Promise<readonly CompletedInference[]> {
  const rows = await queries
    .selectFrom('inferences')
    .selectAll()
    .where('node_id', '=', nodeId)
    .orderBy('created_at', 'desc')
    .orderBy('position', 'desc')
    .limit(COMPLETED_MAX)
    .execute()
  return rows.map(toCompleted)
}

function toCompleted(row: Selectable<Tables['inferences']>): CompletedInference {
  return {
    model: row.model,
    promptTokens: row.prompt_tokens,
    completionTokens: row.completion_tokens,
    totalTokens: row.total_tokens,
    createdAt: row.created_at,
  }
}

/** Uses an index: the time depends only on the number of nodes and of removed rows. */
async function prune(
  queries: Queries,
  { before, now }: { readonly before: number; readonly now: number },
): Promise<void> {
  const { from } = dayOf(now)
  const until = Math.min(before, from)
  await sql`
    delete from inferences using (
      select node_id, (
        select created_at from inferences i where i.node_id = n.node_id
        order by created_at desc, position desc offset ${COMPLETED_MAX - 1}::integer limit 1) as last_shown
      from nodes n) kept
    where inferences.node_id = kept.node_id and inferences.created_at < least(kept.last_shown, ${until}::bigint)
      and kept.last_shown is not null`.execute(queries)
  await sql`delete from node_hours where hour_at < ${until - HOUR_SECONDS}::bigint`.execute(queries)
  await sql`delete from network_minutes where minute_at < ${from - MINUTE_SECONDS}::bigint`.execute(
    queries,
  )
}
