import { randomBytes, randomUUID } from 'node:crypto'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { NodeHardware } from '#src/nodes/protocol/registration.ts'
import {
  BENCHMARKS_PER_NODE_MAX,
  type BegunConnection,
  createNodesStore,
  NODES_PER_ACCOUNT_MAX,
  type NodesStore,
} from '#src/nodes/registry/nodes-store.ts'
import type { Database } from '#src/storage/database.ts'
import { createProcessesStore } from '#src/storage/processes-store.ts'
import { type DatabaseSource, startDatabases } from '../../../support/databases.ts'

const HARDWARE: NodeHardware = {
  operating_system: "Linux 'x'",
  cpu_model: 'CPU ä',
  cpu_count: 8,
  ram: 16_384,
  gpu_model: 'NVIDIA GeForce RTX 4090',
  gpu_count: 2,
  vram: 24_564,
  power_limit: 450,
  network_download_speed: 93.25,
  network_upload_speed: 0,
  version: '0.0.19',
}

const BARE_HARDWARE: NodeHardware = {
  ...HARDWARE,
  cpu_count: null,
  gpu_model: null,
  gpu_count: null,
  vram: null,
  power_limit: null,
  network_download_speed: null,
  network_upload_speed: null,
  version: null,
}

/** A connection of the node, and of no other process than its own. */
const connectionOf = (
  { nodeId }: { readonly nodeId: string },
  begun: Partial<BegunConnection> = {},
): BegunConnection => ({
  nodeId,
  connectionId: randomUUID(),
  processId: randomUUID(),
  at: 5000,
  models: ['m'],
  state: 'RUNNING',
  ...begun,
})

describe('nodes store', () => {
  let source: DatabaseSource
  let database: Database
  let nodes: NodesStore

  beforeAll(async () => {
    source = await startDatabases()
    database = await source.open()
    nodes = createNodesStore(database)
  })
  afterAll(() => source.stop())

  const makeNode = (accountId: string = randomUUID()) => ({
    nodeId: `node_${randomBytes(6).toString('hex')}`,
    accountId,
    name: "rig 'ä'",
    createdAt: 1000,
  })
  async function createNode(accountId?: string) {
    const node = makeNode(accountId)
    expect(await nodes.create(node)).toBe('created')
    return node
  }
  async function createWorkingNode(accountId?: string) {
    const node = await createNode(accountId)
    await nodes.saveHardware({ ...node, hardware: HARDWARE, at: 1500 })
    return node
  }

  it('the nodes store gives a new node back as it was registered, with nothing else known', async () => {
    const node = await createNode()
    expect(await nodes.find(node.nodeId)).toEqual({
      ...node,
      isArchived: false,
      state: null,
      hardware: null,
      connectedSince: null,
      lastSeenAt: null,
      models: [],
      totalUptimeSeconds: 0,
      requestsServed: 0,
    })
  })

  it('the nodes store gives an id to one of those who ask for it at once', async () => {
    const node = makeNode()
    const outcomes = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        nodes.create({ ...node, accountId: randomUUID(), name: `n${index}` }),
      ),
    )
    expect(outcomes.toSorted()).toEqual(['created', ...Array.from({ length: 7 }, () => 'taken')])
  })

  it('the nodes store registers no node for an account that has too many', async () => {
    const accountId = randomUUID()
    await sql`
      insert into nodes (node_id, account_id, name, created_at)
      select 'full_' || ${accountId}::text || i, ${accountId}::uuid, 'n', 0
      from generate_series(1, ${NODES_PER_ACCOUNT_MAX - 1}::integer) as i`.execute(database.queries)
    const last = await createNode(accountId)
    expect(await nodes.create(makeNode(accountId))).toBe('too_many')
    expect(await nodes.create(last)).toBe('taken')
    expect(await nodes.create(makeNode())).toBe('created')
  })

  it('the nodes store lists nodes of one second in the order of their making, each with its last benchmark', async () => {
    const accountId = randomUUID()
    const made = []
    for (let index = 0; index < 8; index++) made.push(await createWorkingNode(accountId))
    const [first] = made
    const measured = { ...(first ?? expect.unreachable()), tokensPerSecond: 10, createdAt: 10 }
    for (const model of ['b', 'a', 'b']) await nodes.saveBenchmark({ ...measured, model })
    await nodes.update({ ...measured, name: null, isArchived: true })
    const listed = await nodes.list(accountId)
    expect(listed.map(({ nodeId }) => nodeId)).toEqual(made.map(({ nodeId }) => nodeId))
    expect(listed[0]?.benchmark).toMatchObject({ model: 'b' })
    await nodes.saveBenchmark({ ...measured, model: 'c' })
    expect(await nodes.newestBenchmark(measured.nodeId)).toMatchObject({ model: 'c' })
  })

  it.each([
    ['whole', HARDWARE],
    ['of a machine without a GPU', BARE_HARDWARE],
  ])('the nodes store gives hardware back as it was reported: %s', async (_, hardware) => {
    const node = await createNode()
    expect(await nodes.saveHardware({ ...node, hardware: HARDWARE, at: 1 })).toBe(true)
    expect(await nodes.saveHardware({ ...node, hardware, at: 2 })).toBe(true)
    expect((await nodes.find(node.nodeId))?.hardware).toEqual(hardware)
  })

  it("the nodes store neither changes nor tells of another account's node", async () => {
    const node = await createWorkingNode()
    const before = await nodes.find(node.nodeId)
    const foreign = { ...node, accountId: randomUUID() }
    expect(await nodes.saveHardware({ ...foreign, hardware: BARE_HARDWARE, at: 9 })).toBe(false)
    expect(await nodes.update({ ...foreign, name: 'mine', isArchived: true })).toBeNull()
    expect(
      await nodes.saveBenchmark({ ...foreign, model: 'm', tokensPerSecond: 1, createdAt: 9 }),
    ).toBe('unknown_node')
    expect(await nodes.list(foreign.accountId)).toEqual([])
    expect(await nodes.find(node.nodeId)).toEqual(before)
  })

  /** Connections of this database that wait for a row. */
  async function countWaiting() {
    const { rows } = await sql<{ count: number }>`
      select count(*) from pg_locks join pg_stat_activity using (pid)
      where datname = current_database() and not granted`.execute(database.queries)
    return Number(rows[0]?.count)
  }

  it('the nodes store lets one of two equal updates at once say that it changed something', async () => {
    const node = await createNode()
    const areAsked = Promise.withResolvers<void>()
    const isHeld = Promise.withResolvers<void>()
    // All of them wait for the row, so each was asked before any of them changed it.
    const holding = database.queries.transaction().execute(async (held) => {
      await sql`update nodes set version = 'x' where node_id = ${node.nodeId}`.execute(held)
      isHeld.resolve()
      await areAsked.promise
    })
    await isHeld.promise
    const asked = Array.from({ length: 3 }, () =>
      nodes.update({ ...node, name: 'renamed', isArchived: null }),
    )
    await expect.poll(countWaiting).toBe(asked.length)
    areAsked.resolve()
    await holding
    const updates = await Promise.all(asked)
    expect(updates.filter((update) => update?.isNameUpdated)).toHaveLength(1)
  })

  it('the nodes store keeps one benchmark a model, the last', async () => {
    const node = await createWorkingNode()
    const save = (model: string, tokensPerSecond: number, createdAt: number) =>
      nodes.saveBenchmark({ ...node, model, tokensPerSecond, createdAt })
    expect(await save('m', 10.5, 100)).toBe('saved')
    expect(await save('m', 7.25, 300)).toBe('saved')
    expect(await save('other', 3, 200)).toBe('saved')
    const benchmark = { nodeId: node.nodeId, model: 'm', tokensPerSecond: 7.25, createdAt: 300 }
    expect(await nodes.findBenchmark(node.nodeId, 'm')).toEqual(benchmark)
    expect(await nodes.newestBenchmark(node.nodeId)).toEqual(benchmark)
    expect(await nodes.findBenchmark(node.nodeId, 'none')).toBeNull()
    expect(await nodes.newestBenchmark('nobody')).toBeNull()
  })

  it('the nodes store stores benchmarks of so many models and no more, but renews those it has', async () => {
    const node = await createWorkingNode()
    const save = (model: string) =>
      nodes.saveBenchmark({ ...node, model, tokensPerSecond: 1, createdAt: 1 })
    await sql`
      insert into node_benchmarks (node_id, model, tokens_per_second, created_at)
      select ${node.nodeId}::text, 'm' || i, 1, 1
      from generate_series(2, ${BENCHMARKS_PER_NODE_MAX}::integer) as i`.execute(database.queries)
    expect(await save('m1')).toBe('saved')
    expect(await save('one more')).toBe('too_many')
    expect(await save('m7')).toBe('saved')
  })

  describe('connections', () => {
    it('connections count to the uptime when they end, once', async () => {
      const first = await createNode().then((node) => connectionOf(node))
      const { nodeId } = first
      expect(await nodes.markConnected({ ...first, models: ['m', "n'"] })).toBe(true)
      expect(await nodes.find(nodeId)).toMatchObject({
        connectedSince: 5000,
        lastSeenAt: 5000,
        models: ['m', "n'"],
        state: 'RUNNING',
        totalUptimeSeconds: 0,
      })
      await nodes.setState(first, 'RUNNING_DEGRADED')
      expect(await nodes.find(nodeId)).toMatchObject({ state: 'RUNNING_DEGRADED' })
      for (const at of [5100, 9999])
        await nodes.markDisconnected(first, { at, state: 'STOPPED_DEGRADED' })
      const gone = { connectedSince: null, lastSeenAt: 5100, models: [], totalUptimeSeconds: 100 }
      expect(await nodes.find(nodeId)).toMatchObject({ ...gone, state: 'STOPPED_DEGRADED' })
      const second = connectionOf(first, { at: 6000 })
      await nodes.markConnected(second)
      await nodes.markDisconnected(second, { at: 6011, state: 'STOPPED' })
      expect(await nodes.find(nodeId)).toMatchObject({ totalUptimeSeconds: 111 })
    })

    it('connections are refused for a node that is archived or unknown', async () => {
      const node = await createNode()
      await nodes.update({ ...node, name: null, isArchived: true })
      expect(await nodes.markConnected(connectionOf(node))).toBe(false)
      expect(await nodes.markConnected(connectionOf({ nodeId: 'nobody' }))).toBe(false)
      expect(await nodes.find(node.nodeId)).toMatchObject({ connectedSince: null, models: [] })
    })

    it('connections leave a node disabled that the operator disabled', async () => {
      const connection = await createNode().then((node) => connectionOf(node))
      const stateOf = async () => (await nodes.find(connection.nodeId))?.state
      await nodes.markConnected(connection)
      await sql`update nodes set state = 'RUNNING_DISABLED' where node_id = ${connection.nodeId}`.execute(
        database.queries,
      )
      await nodes.setState(connection, 'RUNNING')
      expect(await stateOf()).toBe('RUNNING_DISABLED')
      await nodes.markDisconnected(connection, { at: 5100, state: 'STOPPED' })
      expect(await stateOf()).toBe('STOPPED_DISABLED')
      await nodes.markConnected(connection)
      expect(await stateOf()).toBe('RUNNING_DISABLED')
    })

    it('a connection that was replaced ends nothing, whatever is stored about it later', async () => {
      const old = await createNode().then((node) => connectionOf(node))
      const next = connectionOf(old, { at: 6000, processId: randomUUID() })
      await nodes.markConnected(old)
      await nodes.markSeen([old], { processId: old.processId, at: 5060 })
      await nodes.markConnected(next)
      expect(await nodes.markConnected(old, 'when_free')).toBe(false)
      expect(await nodes.markSeen([old], { processId: old.processId, at: 7000 })).toEqual(new Set())
      await nodes.setState(old, 'RUNNING_DEGRADED')
      await nodes.markDisconnected(old, { at: 7001, state: 'STOPPED' })
      expect(await nodes.find(old.nodeId)).toMatchObject({
        connectedSince: 6000,
        lastSeenAt: 6000,
        models: ['m'],
        state: 'RUNNING',
        totalUptimeSeconds: 60,
      })
      expect(await nodes.markSeen([next], { processId: next.processId, at: 7000 })).toEqual(
        new Set([next.nodeId]),
      )
      await nodes.markDisconnected(next, { at: 7100, state: 'STOPPED' })
      expect(await nodes.markConnected(old, 'when_free')).toBe(true)
    })

    it('connections that no living process holds end, once, when their nodes were last seen', async () => {
      const clock = { now: 10_000 }
      const own = await source.open()
      const [store, other] = [
        createNodesStore(own, () => clock.now),
        createNodesStore(own, () => clock.now),
      ]
      const processes = createProcessesStore(own, () => clock.now)
      const [dead, alive] = [randomUUID(), randomUUID()]
      await processes.enter(dead, 15)
      const open = async (connection: Partial<BegunConnection>) => {
        const node = makeNode()
        await store.create(node)
        const begun = connectionOf(node, connection)
        await store.markConnected(begun)
        return begun
      }
      const left = await open({ processId: dead, state: 'RUNNING_DEGRADED' })
      const moved = await open({ processId: dead })
      const kept = await open({ processId: alive })
      const never = await open({ processId: randomUUID() })
      await store.markSeen([left], { processId: dead, at: 5060 })
      clock.now += 14
      await processes.enter(alive, 15)
      expect(await store.network()).toMatchObject({ nodes: 4, connectedNodes: 3 })
      expect(await store.find(never.nodeId)).toMatchObject({ connectedSince: null })
      await store.markConnected(connectionOf(moved, { processId: alive, at: 6000 }))
      clock.now += 1
      expect(
        (await Promise.all([store, other].map((each) => each.endAbandoned()))).toSorted(),
      ).toEqual([0, 1])
      expect(await store.network()).toMatchObject({ connectedNodes: 2 })
      expect(await store.find(left.nodeId)).toMatchObject({
        connectedSince: null,
        lastSeenAt: 5060,
        models: [],
        totalUptimeSeconds: 60,
        state: 'STOPPED_DEGRADED',
      })
      for (const { nodeId } of [moved, kept])
        expect(await store.find(nodeId)).toMatchObject({ models: ['m'], state: 'RUNNING' })
    })
  })

  it('the network is its connected nodes, by their benchmarks of the models they serve', async () => {
    const { queries } = await source.open()
    const own = createNodesStore({ queries })
    expect(await own.offeredModels()).toEqual([])
    const benchmark = async (
      node: ReturnType<typeof makeNode>,
      model: string,
      tokensPerSecond: number,
    ) => own.saveBenchmark({ ...node, model, tokensPerSecond, createdAt: 1 })
    const [first, second, away, archived] = [makeNode(), makeNode(), makeNode(), makeNode()]
    for (const node of [first, second, away, archived]) {
      await own.create(node)
      await own.saveHardware({ ...node, hardware: HARDWARE, at: 1 })
      await benchmark(node, 'small', 100.5)
      await benchmark(node, 'large', 40)
    }
    expect(await own.offeredModels()).toEqual(['large', 'small'])
    await own.update({ ...archived, name: null, isArchived: true })
    const processId = randomUUID()
    await createProcessesStore({ queries }).enter(processId, 60)
    const models = ['small', 'large', 'unmeasured']
    await own.markConnected(connectionOf(first, { processId, models }))
    await own.markConnected(connectionOf(second, { processId, models: ['large'] }))
    expect(await own.network()).toEqual({
      nodes: 3,
      connectedNodes: 2,
      tokensPerSecond: 140.5,
      models: [
        { model: 'small', tokensPerSecond: 100.5 },
        { model: 'large', tokensPerSecond: 80 },
      ],
    })
  })
})
