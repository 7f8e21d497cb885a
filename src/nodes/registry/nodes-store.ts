import { type RawBuilder, type Selectable, sql } from 'kysely'
import { clockSeconds, type StoreClock } from '../../storage/clock.ts'
import type { Database } from '../../storage/database.ts'
import type { Queries, Tables } from '../../storage/tables.ts'
import { type NodeHardware, pickHardware } from '../protocol/registration.ts'
import { isNodeState, NODE_STATES, type NodeState, stopState } from './node-state.ts'

/** Archived nodes count too. A list of nodes has no pages, so the number of nodes needs a limit. */
export const NODES_PER_ACCOUNT_MAX = 20_000

/** Maximum number of models that `offeredModels` returns. */
const OFFERED_MODELS_MAX = 10_000

export const BENCHMARKS_PER_NODE_MAX = 100

/** Limits the models in NetworkFigures, because nodes choose the names of models. */
const NETWORK_MODELS_MAX = 500

/** A contributed node. Times are Unix seconds. */
export type StoredNode = {
  readonly nodeId: string
  readonly accountId: string
  readonly name: string
  readonly createdAt: number
  readonly isArchived: boolean
  /** Null for a node that never connected. */
  readonly state: NodeState | null
  /** Null until the node's agent has reported the hardware. */
  readonly hardware: NodeHardware | null
  /** Null while the node is not connected. */
  readonly connectedSince: number | null
  readonly lastSeenAt: number | null
  /** Empty while the node is not connected. */
  readonly models: readonly string[]
  /** Sum of the durations of all ended connections. */
  readonly totalUptimeSeconds: number
  readonly requestsServed: number
}

type ListedNode = StoredNode & {
  readonly benchmark: NodeBenchmark | null
  readonly speeds: ReadonlyMap<string, number>
}

/** An agent measured these values at its backend. They are the agent's claim. */
export type NodeBenchmark = {
  readonly nodeId: string
  readonly model: string
  readonly tokensPerSecond: number
  readonly createdAt: number
}

/** Figures of all connected nodes, from the nodes' own benchmarks of the models that they serve. */
type NetworkFigures = {
  /** Archived nodes are not counted. */
  readonly nodes: number
  readonly connectedNodes: number
  /** Sum of the speeds of each connected node's fastest model. */
  readonly tokensPerSecond: number
  /** At most NETWORK_MODELS_MAX models, the fastest first. */
  readonly models: readonly { readonly model: string; readonly tokensPerSecond: number }[]
}

/** Identifies one connection, so that a late write for an earlier connection has no effect. */
export type ConnectionOfNode = { readonly nodeId: string; readonly connectionId: string }

export type BegunConnection = ConnectionOfNode & {
  /** Id of the gateway process that has the connection, from `ProcessLease.id`. */
  readonly processId: string
  readonly at: number
  readonly models: readonly string[]
  /** A disabled node stays disabled, because only the operator can enable it. */
  readonly state: NodeState
}

/** A node of another account counts as unknown. */
export type OwnNode = { readonly nodeId: string; readonly accountId: string }

/** Every method throws the driver's error when the database fails. */
export type NodesStore = {
  /**
   * 'too_many': the account has NODES_PER_ACCOUNT_MAX nodes. Concurrent calls may exceed the limit
   * by a few nodes.
   */
  create(
    node: OwnNode & { readonly name: string; readonly createdAt: number },
  ): Promise<'created' | 'taken' | 'too_many'>
  /** The node may belong to any account. */
  find(nodeId: string): Promise<StoredNode | null>
  /**
   * Oldest first, including archived nodes. `benchmark` is the node's newest benchmark. `speeds`
   * has the tokens per second of the models that the node serves now.
   */
  list(accountId: string): Promise<readonly ListedNode[]>
  /** Changes the members that are not null. Null when the node does not exist. */
  update(
    node: OwnNode & { readonly name: string | null; readonly isArchived: boolean | null },
  ): Promise<{ readonly isNameUpdated: boolean; readonly isArchivalUpdated: boolean } | null>
  /** False when the node does not exist. */
  saveHardware(
    node: OwnNode & { readonly hardware: NodeHardware; readonly at: number },
  ): Promise<boolean>
  /**
   * Replaces the last benchmark of the same model. Returns 'unknown_node' also for a node of
   * another account, and for a node without hardware.
   */
  saveBenchmark(
    benchmark: NodeBenchmark & { readonly accountId: string },
  ): Promise<'saved' | 'unknown_node' | 'too_many'>
  findBenchmark(nodeId: string, model: string): Promise<NodeBenchmark | null>
  newestBenchmark(nodeId: string): Promise<NodeBenchmark | null>
  /**
   * Stores the state of a connected node. Does nothing if this is no longer the node's connection.
   * A disabled node stays disabled.
   */
  setState(connection: ConnectionOfNode, state: NodeState): Promise<void>
  /**
   * Stores the start of a node's connection, and the models that the node serves. Replaces an
   * earlier connection, even to another process: its uptime ends when the node was last seen. With
   * `takes` 'when_free', replaces no connection. False if the connection was not stored:
   * 'when_free' found another connection, or the node is unknown or archived.
   */
  markConnected(connection: BegunConnection, takes?: 'always' | 'when_free'): Promise<boolean>
  /**
   * Stores that connections still exist, and the process to which the nodes are connected. If the
   * process is killed later, the uptime of these connections ends at `at`. Returns the ids of the
   * nodes that still have these connections. The other connections were replaced, or ended by a
   * gateway that treated this process as dead.
   */
  markSeen(
    connections: readonly ConnectionOfNode[],
    by: { readonly processId: string; readonly at: number },
  ): Promise<ReadonlySet<string>>
  /**
   * Stores that a node's connection ended: adds its duration to the uptime, and stores the state.
   * Does nothing if this is no longer the node's connection.
   */
  markDisconnected(
    connection: ConnectionOfNode,
    end: { readonly at: number; readonly state: NodeState },
  ): Promise<void>
  /**
   * Ends the connections whose process is dead. Their uptime ends when the node was last seen.
   * Changes the states of these nodes to STOPPED…. Returns the number of ended connections. Any
   * gateway may call this at any time, because each connection is ended only once.
   */
  endAbandoned(): Promise<number>
  /** Reads the figures. Only connections to living gateways of this database count. */
  network(): Promise<NetworkFigures>
  /** Models for which nodes have stored a benchmark, sorted by name. */
  offeredModels(): Promise<readonly string[]>
}

/**
 * Opens the store on the database's shared connections, for any number of gateways. The newest
 * stored connection of a node counts while the connection's process is alive.
 */
export function createNodesStore(
  { queries }: Pick<Database, 'queries'>,
  clock: StoreClock = null,
): NodesStore {
  const selectNode = (nodeId: string) =>
    queries.selectFrom('nodes').selectAll().where('node_id', '=', nodeId)

  return {
    async create(node) {
      if (await insertNode(queries, node)) return 'created'
      return (await selectNode(node.nodeId).executeTakeFirst()) === undefined ? 'too_many' : 'taken'
    },
    async find(nodeId) {
      const row = await selectNode(nodeId).executeTakeFirst()
      return row === undefined ? null : toNode(row)
    },
    async list(accountId) {
      const rows = await queries
        .selectFrom('nodes')
        .selectAll()
        .where('account_id', '=', accountId)
        .orderBy('created_at')
        .orderBy('position')
        .execute()
      const [benchmarks, speeds] = await Promise.all([
        findNewestBenchmarks(queries, { accountId }),
        readServedSpeeds(queries, accountId),
      ])
      return rows.map((row) => ({
        ...toNode(row),
        benchmark: benchmarks.get(row.node_id) ?? null,
        speeds: new Map(speeds.get(row.node_id)),
      }))
    },
    update: (node) => updateNode(queries, node),
    async saveHardware({ nodeId, accountId, hardware, at }) {
      const { numUpdatedRows } = await queries
        .updateTable('nodes')
        .set({ ...hardware, hardware_at: at })
        .where('node_id', '=', nodeId)
        .where('account_id', '=', accountId)
        .executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },
    saveBenchmark: (benchmark) => saveBenchmark(queries, benchmark),
    async findBenchmark(nodeId, model) {
      const row = await queries
        .selectFrom('node_benchmarks')
        .selectAll()
        .where('node_id', '=', nodeId)
        .where('model', '=', model)
        .executeTakeFirst()
      return row === undefined ? null : toBenchmark(row)
    },
    newestBenchmark: async (nodeId) =>
      (await findNewestBenchmarks(queries, { nodeId })).get(nodeId) ?? null,
    async setState({ nodeId, connectionId }, state) {
      await sql`
        update nodes set state = ${unlessDisabled(state)}
        where node_id = ${nodeId} and connection_id = ${connectionId}`.execute(queries)
    },
    async markConnected({ nodeId, connectionId, processId, at, models, state }, takes = 'always') {
      const { numAffectedRows } = await sql`
        update nodes set total_uptime_seconds = ${UPTIME_WHEN_LAST_SEEN}, connected_since = ${at}::bigint,
          last_seen_at = ${at}::bigint, models = ${models}::text[], state = ${unlessDisabled(state)},
          process_id = ${processId}, connection_id = ${connectionId}
        where node_id = ${nodeId} and not is_archived
          and (${takes === 'always'} or connected_since is null)`.execute(queries)
      return (numAffectedRows ?? 0n) > 0n
    },
    async markSeen(connections, { processId, at }) {
      const { rows } = await sql<{ node_id: string }>`
        update nodes set last_seen_at = greatest(last_seen_at, ${at}::bigint), process_id = ${processId}
        from unnest(${connections.map(({ nodeId }) => nodeId)}::text[],
          ${connections.map(({ connectionId }) => connectionId)}::uuid[]) as held(node_id, connection_id)
        where nodes.node_id = held.node_id and nodes.connection_id = held.connection_id
        returning nodes.node_id`.execute(queries)
      return new Set(rows.map(({ node_id }) => node_id))
    },
    async markDisconnected({ nodeId, connectionId }, { at, state }) {
      await sql`
        update nodes set total_uptime_seconds = total_uptime_seconds + greatest(0, ${at}::bigint - connected_since),
          last_seen_at = greatest(last_seen_at, ${at}::bigint), state = ${unlessDisabled(state)}, ${NO_CONNECTION}
        where node_id = ${nodeId} and connection_id = ${connectionId}`.execute(queries)
    },
    endAbandoned: () => endAbandoned(queries, clock),
    async network() {
      await endAbandoned(queries, clock)
      return readNetworkFigures(queries)
    },
    async offeredModels() {
      const rows = await queries
        .selectFrom('node_benchmarks')
        .select('model')
        .distinct()
        .orderBy('model')
        .limit(OFFERED_MODELS_MAX)
        .execute()
      return rows.map(({ model }) => model)
    },
  }
}

/** Uptime including the open connection, which counts until the node was last seen. */
const UPTIME_WHEN_LAST_SEEN = sql`
  total_uptime_seconds + case when connected_since is null then 0 else greatest(0, last_seen_at - connected_since) end`

const NO_CONNECTION = sql`connected_since = null, models = '{}', process_id = null, connection_id = null`

/** Only the operator can enable a disabled node. */
function unlessDisabled(state: NodeState): RawBuilder<string> {
  const disabled = stopState(state) === state ? 'STOPPED_DISABLED' : 'RUNNING_DISABLED'
  return sql`case when state in ('RUNNING_DISABLED', 'STOPPED_DISABLED') then ${disabled} else ${state} end`
}

/**
 * Skips a node whose row another gateway is changing. A process that loses its lease during this
 * statement counts as alive. If a row changed before this statement locked it, the new row counts.
 */
async function endAbandoned(queries: Queries, clock: StoreClock): Promise<number> {
  const { numAffectedRows } = await sql`
    update nodes set total_uptime_seconds = ${UPTIME_WHEN_LAST_SEEN}, state = coalesce((
        select stopped from unnest(${NODE_STATES}::text[], ${NODE_STATES.map(stopState)}::text[]) as stops(running, stopped)
        where running = state), state), ${NO_CONNECTION}
    where node_id in (
      select node_id from nodes
      where connected_since is not null and (process_id is null or process_id <> all (array(
        select id from gateway_processes where expires_at > ${clockSeconds(clock)})))
      order by node_id for update skip locked)`.execute(queries)
  return Number(numAffectedRows ?? 0n)
}

/** False when the id is taken or the account has the maximum number of nodes. */
async function insertNode(
  queries: Queries,
  { nodeId, accountId, name, createdAt }: Parameters<NodesStore['create']>[0],
): Promise<boolean> {
  const { numAffectedRows } = await sql`
    insert into nodes (node_id, account_id, name, created_at)
    select ${nodeId}, ${accountId}::uuid, ${name}, ${createdAt}::bigint
    where (select count(*) from nodes where account_id = ${accountId}::uuid) < ${NODES_PER_ACCOUNT_MAX}::integer
    on conflict (node_id) do nothing`.execute(queries)
  return (numAffectedRows ?? 0n) > 0n
}

/**
 * Locks the row before reading it. If two equal updates run at the same time, only one of them
 * reports a change.
 */
async function updateNode(
  queries: Queries,
  { nodeId, accountId, name, isArchived }: Parameters<NodesStore['update']>[0],
): ReturnType<NodesStore['update']> {
  const { rows } = await sql<{ was_named: string; was_archived: boolean }>`
    update nodes set name = coalesce(${name}::text, nodes.name),
      is_archived = coalesce(${isArchived}::boolean, nodes.is_archived)
    from (select * from nodes where node_id = ${nodeId} and account_id = ${accountId}::uuid for update) was
    where nodes.node_id = was.node_id
    returning was.name as was_named, was.is_archived as was_archived`.execute(queries)
  const [was] = rows
  if (was === undefined) return null
  return {
    isNameUpdated: name !== null && name !== was.was_named,
    isArchivalUpdated: isArchived !== null && isArchived !== was.was_archived,
  }
}

function toNode(row: Selectable<Tables['nodes']>): StoredNode {
  if (row.state !== null && !isNodeState(row.state))
    throw new TypeError(`expected a node state, got ${row.state}`)
  const isReported = row.operating_system !== null && row.cpu_model !== null && row.ram !== null
  return {
    nodeId: row.node_id,
    accountId: row.account_id,
    name: row.name,
    createdAt: row.created_at,
    isArchived: row.is_archived,
    state: row.state,
    hardware: isReported ? pickHardware(row) : null,
    connectedSince: row.connected_since,
    lastSeenAt: row.last_seen_at,
    models: row.models,
    totalUptimeSeconds: row.total_uptime_seconds,
    requestsServed: row.requests_served,
  }
}

type BenchmarkRow = Selectable<Tables['node_benchmarks']>

function toBenchmark(row: BenchmarkRow): NodeBenchmark {
  return {
    nodeId: row.node_id,
    model: row.model,
    tokensPerSecond: row.tokens_per_second,
    createdAt: row.created_at,
  }
}

/** Concurrent calls for new models may exceed the limit by a few benchmarks. */
async function saveBenchmark(
  queries: Queries,
  {
    nodeId,
    accountId,
    model,
    tokensPerSecond,
    createdAt,
  }: Parameters<NodesStore['saveBenchmark']>[0],
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

/** The keys are node ids. */
async function findNewestBenchmarks(
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

/** Reads only speeds of models that connected nodes serve now. The keys are node ids. */
async function readServedSpeeds(queries: Queries, accountId: string) {
  const { rows } = await sql<Pick<BenchmarkRow, 'node_id' | 'model' | 'tokens_per_second'>>`
    select b.node_id, b.model, b.tokens_per_second from nodes n
    join node_benchmarks b on b.node_id = n.node_id and b.model = any(n.models)
    where n.account_id = ${accountId}::uuid and n.connected_since is not null`.execute(queries)
  const speeds = new Map<string, (readonly [model: string, speed: number])[]>()
  for (const row of rows) {
    const known = speeds.get(row.node_id) ?? []
    known.push([row.model, row.tokens_per_second])
    speeds.set(row.node_id, known)
  }
  return speeds
}

async function readNetworkFigures(queries: Queries): Promise<NetworkFigures> {
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
