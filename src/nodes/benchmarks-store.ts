import { type Selectable, sql } from 'kysely'
import type { Queries, Tables } from '../storage/tables.ts'
import type { NodeBenchmark, NodesStore } from './nodes-store.ts'

/** A node can have benchmarks of so many models. */
export const BENCHMARKS_PER_NODE_MAX = 100

type BenchmarkRow = Selectable<Tables['node_benchmarks']>

/** Gives the benchmark of a row. */
export function toBenchmark(row: BenchmarkRow): NodeBenchmark {
  return {
    nodeId: row.node_id,
    model: row.model,
    tokensPerSecond: row.tokens_per_second,
    createdAt: row.created_at,
  }
}

/** NodesStore.saveBenchmark. Calls at once for new models may pass the bound by a few. */
export async function saveBenchmark(
  queries: Queries,
  { nodeId, accountId, model, tokensPerSecond, createdAt }: Parameters<NodesStore['saveBenchmark']>[0],
): ReturnType<NodesStore['saveBenchmark']> {
  const { rows } = await sql<{ is_known: boolean; saved: number }>`
    with node as (
      select node_id from nodes
      where node_id = ${nodeId} and account_id = ${accountId}::uuid and hardware_at is not null),
    saved as (
      insert into node_benchmarks (node_id, model, tokens_per_second, created_at)
      select node_id, ${model}, ${tokensPerSecond}::double precision, ${createdAt}::bigint from node
      where (select count(*) from node_benchmarks where node_id = ${nodeId} and model <> ${model})
        < ${BENCHMARKS_PER_NODE_MAX}::integer
      on conflict (node_id, model) do update
        set tokens_per_second = excluded.tokens_per_second, created_at = excluded.created_at, position = default
      returning 1)
    select exists (select from node) as is_known, (select count(*) from saved)::integer as saved`.execute(
    queries,
  )
  if (rows[0]?.saved === 1) return 'saved'
  return rows[0]?.is_known ? 'too_many' : 'unknown_node'
}

/** Gives the newest benchmark of one node, or of each of an account's nodes, by node id. */
export async function findNewestBenchmarks(
  queries: Queries,
  of: { readonly nodeId: string } | { readonly accountId: string },
): Promise<ReadonlyMap<string, NodeBenchmark>> {
  const those =
    'nodeId' in of
      ? sql`node_id = ${of.nodeId}`
      : sql`node_id in (select node_id from nodes where account_id = ${of.accountId}::uuid)`
  const { rows } = await sql<BenchmarkRow>`
    select distinct on (node_id) * from node_benchmarks where ${those}
    order by node_id, created_at desc, position desc`.execute(queries)
  return new Map(rows.map((row) => [row.node_id, toBenchmark(row)]))
}
