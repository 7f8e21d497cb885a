import { sql } from 'kysely'
import type { Queries } from '../storage/tables.ts'
import type { NetworkFigures } from './nodes-store.ts'

/** Models of the network's figures, the fastest first: their names are their nodes' own. */
export const NETWORK_MODELS_MAX = 500

/** NodesStore.network. One pass over the connected nodes and their benchmarks. */
export async function readNetworkFigures(queries: Queries): Promise<NetworkFigures> {
  const [counts, models] = await Promise.all([readCounts(queries), readModels(queries)])
  return { ...counts, models }
}

async function readCounts(queries: Queries): Promise<Omit<NetworkFigures, 'models'>> {
  const { rows } = await sql<{ nodes: number; connected: number; tokens_per_second: number }>`
    select (select count(*) from nodes where not is_archived) as nodes,
      (select count(*) from nodes where connected_since is not null) as connected,
      (select coalesce(sum(fastest), 0) from (
        select max(b.tokens_per_second) as fastest from nodes n
        join node_benchmarks b on b.node_id = n.node_id and b.model = any(n.models)
        where n.connected_since is not null group by n.node_id) each_node) as tokens_per_second`.execute(
    queries,
  )
  const { nodes, connected, tokens_per_second: tokensPerSecond } = rows[0] ?? NO_NODES
  return { nodes, connectedNodes: connected, tokensPerSecond }
}

const NO_NODES = { nodes: 0, connected: 0, tokens_per_second: 0 }

async function readModels(queries: Queries): Promise<NetworkFigures['models']> {
  const { rows } = await sql<{ model: string; tokens_per_second: number }>`
    select b.model, sum(b.tokens_per_second) as tokens_per_second from nodes n
    join node_benchmarks b on b.node_id = n.node_id and b.model = any(n.models)
    where n.connected_since is not null
    group by b.model order by tokens_per_second desc, b.model limit ${NETWORK_MODELS_MAX}::integer`.execute(
    queries,
  )
  return rows.map((row) => ({ model: row.model, tokensPerSecond: row.tokens_per_second }))
}
