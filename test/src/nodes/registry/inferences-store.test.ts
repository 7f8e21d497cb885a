import { randomBytes, randomUUID } from 'node:crypto'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  COMPLETED_MAX,
  createInferencesStore,
  DAY_SECONDS,
  FIRST_TOKENS_MAX,
  type Inference,
  type InferencesStore,
} from '#src/nodes/registry/inferences-store.ts'
import { createNodesStore, type NodesStore } from '#src/nodes/registry/nodes-store.ts'
import type { Database } from '#src/storage/database.ts'
import { type DatabaseSource, startDatabases } from '../../../support/databases.ts'

/** In the middle of an hour and of a minute. */
const NOW = 1_790_000_000 + 1_817

describe('inferences store', () => {
  let source: DatabaseSource
  let database: Database
  let inferences: InferencesStore
  let nodes: NodesStore

  beforeAll(async () => {
    source = await startDatabases()
    database = await source.open()
    inferences = createInferencesStore(database)
    nodes = createNodesStore(database)
  })
  afterAll(() => source.stop())

  async function createNode(accountId: string = randomUUID()): Promise<string> {
    const nodeId = `node_${randomBytes(6).toString('hex')}`
    await nodes.create({ nodeId, accountId, name: 'rig', createdAt: 1 })
    return nodeId
  }
  const makeInference = (nodeId: string, of: Partial<Inference> = {}): Inference => ({
    id: randomUUID(),
    nodeId,
    accountId: randomUUID(),
    model: "m 'ä'",
    promptTokens: 3,
    completionTokens: 4,
    totalTokens: 7,
    timeToFirstTokenMs: 120.5,
    createdAt: NOW,
    ...of,
  })
  const servedOf = async (nodeId: string) => (await nodes.find(nodeId))?.requestsServed

  it('the inferences store counts each id once, however often and with whom it is added', async () => {
    const nodeId = await createNode()
    const [first, second, third] = [
      makeInference(nodeId),
      makeInference(nodeId),
      makeInference(nodeId),
    ]
    await inferences.add([first, second])
    await inferences.add([second, third])
    await Promise.all([inferences.add([third]), inferences.add([third])])
    expect(await servedOf(nodeId)).toBe(3)
    expect(await inferences.stats(nodeId, NOW)).toMatchObject({ requestsServedDay: 3 })
  })

  it('the inferences store counts to each node its own, and takes what an unknown node served', async () => {
    const [one, two] = [await createNode(), await createNode()]
    await inferences.add([
      makeInference(one),
      makeInference(two),
      makeInference('unknown'),
      makeInference(two),
    ])
    expect([await servedOf(one), await servedOf(two)]).toEqual([1, 2])
    expect(await inferences.stats('unknown', NOW)).toMatchObject({ requestsServedDay: 1 })
  })

  it('the inferences store adds all of a batch or nothing', async () => {
    const nodeId = await createNode()
    const broken = makeInference(nodeId, { model: 'a\0b' })
    await expect(inferences.add([makeInference(nodeId), broken])).rejects.toThrow()
    expect(await servedOf(nodeId)).toBe(0)
    expect((await inferences.stats(nodeId, NOW)).completed).toEqual([])
  })

  it('the inferences store counts many batches at once without losing one', async () => {
    const [one, two] = [await createNode(), await createNode()]
    const batches = Array.from({ length: 12 }, () => [makeInference(one), makeInference(two)])
    await Promise.all(batches.map((batch) => inferences.add(batch)))
    expect([await servedOf(one), await servedOf(two)]).toEqual([12, 12])
  })

  it('the inferences store shows the last ten, newest first, those of one second in order of arrival', async () => {
    const nodeId = await createNode()
    const later = Array.from({ length: 12 }, (_, index) =>
      makeInference(nodeId, { totalTokens: index }),
    )
    await inferences.add(later)
    await inferences.add([makeInference(nodeId, { createdAt: NOW - 50, totalTokens: 99 })])
    const { completed } = await inferences.stats(nodeId, NOW)
    expect(completed).toHaveLength(COMPLETED_MAX)
    expect(completed.map(({ totalTokens }) => totalTokens)).toEqual([
      11, 10, 9, 8, 7, 6, 5, 4, 3, 2,
    ])
    expect(completed[0]).toEqual({
      model: "m 'ä'",
      promptTokens: 3,
      completionTokens: 4,
      totalTokens: 11,
      createdAt: NOW,
    })
  })

  it('the inferences store lets a call fall out of the day to the second, on whatever side of an hour', async () => {
    const nodeId = await createNode()
    const hour = NOW - (NOW % 3600)
    const times = [NOW, hour, hour - 1, hour + 1, NOW - 3599, NOW - 7200]
    await inferences.add(times.map((createdAt) => makeInference(nodeId, { createdAt })))
    for (const now of [NOW, ...times.flatMap((at) => [at + DAY_SECONDS - 1, at + DAY_SECONDS])]) {
      const { requestsServedDay } = await inferences.stats(nodeId, now)
      expect([now, requestsServedDay]).toEqual([
        now,
        times.filter((at) => at > now - DAY_SECONDS).length,
      ])
    }
  })

  it('the inferences store averages first-token times of the day alone, and of the timed calls', async () => {
    const nodeId = await createNode()
    const timed = (timeToFirstTokenMs: number | null, createdAt: number) =>
      makeInference(nodeId, { timeToFirstTokenMs, createdAt })
    await inferences.add([timed(null, NOW)])
    expect((await inferences.stats(nodeId, NOW)).averageTimeToFirstTokenMs).toBeNull()
    await inferences.add([
      timed(100, NOW),
      timed(201, NOW - DAY_SECONDS + 1),
      timed(9999, NOW - DAY_SECONDS),
    ])
    expect((await inferences.stats(nodeId, NOW)).averageTimeToFirstTokenMs).toBe(150.5)
  })

  it("the inferences store gives the day's count of each of an account's nodes", async () => {
    const accountId = randomUUID()
    const [busy, edge, idle, foreign] = [
      await createNode(accountId),
      await createNode(accountId),
      await createNode(accountId),
      await createNode(),
    ]
    const old = { createdAt: NOW - DAY_SECONDS }
    await inferences.add([makeInference(busy), makeInference(busy), makeInference(foreign)])
    await inferences.add([
      makeInference(edge, { createdAt: NOW - DAY_SECONDS + 1 }),
      makeInference(idle, old),
    ])
    expect(await inferences.servedDay(accountId, NOW)).toEqual(
      new Map([
        [busy, 2],
        [edge, 1],
      ]),
    )
  })

  it("the inferences store counts the network's day to the minute", async () => {
    const own = createInferencesStore(await source.open())
    expect(await own.network(NOW)).toEqual({ inferencesDay: 0 })
    const minute = NOW - (NOW % 60)
    await own.add([
      makeInference('a'),
      makeInference('b'),
      makeInference('b', { createdAt: minute - 1 }),
    ])
    expect(await own.network(NOW)).toEqual({ inferencesDay: 3 })
    expect(await own.network(minute + DAY_SECONDS - 1)).toEqual({ inferencesDay: 2 })
    expect(await own.network(minute + DAY_SECONDS + 60)).toEqual({ inferencesDay: 0 })
  })

  it('the inferences store gives the hours of a node, with percentiles of the last calls of each', async () => {
    const nodeId = await createNode()
    const hour = NOW - (NOW % 3600)
    const timed = (createdAt: number, timeToFirstTokenMs: number | null) =>
      makeInference(nodeId, { createdAt, timeToFirstTokenMs })
    await inferences.add([timed(hour - 1, null), timed(hour - 3600, null)])
    // Those before the last calls are slow: they count, and are in no percentile.
    await inferences.add(Array.from({ length: 50 }, () => timed(hour, 60_000)))
    await inferences.add(
      Array.from({ length: FIRST_TOKENS_MAX }, (_, at) => timed(hour + 1, at + 1)),
    )
    await inferences.add([makeInference(await createNode(), { createdAt: hour })])
    const before = { requests: 2, promptTokens: 6, completionTokens: 8, firstTokenMs: null }
    expect(await inferences.history(nodeId, hour - 3600)).toEqual([
      { start: hour - 3600, ...before },
      {
        start: hour,
        requests: 250,
        promptTokens: 750,
        completionTokens: 1000,
        firstTokenMs: { p50: 100.5, p95: expect.closeTo(190.05) },
      },
    ])
    expect(await inferences.history(nodeId, hour - 3599)).toHaveLength(1)
  })

  it('the inferences store takes whatever nodes claim', async () => {
    const nodeId = await createNode()
    const huge = {
      promptTokens: Number.MAX_SAFE_INTEGER,
      completionTokens: Number.MAX_SAFE_INTEGER,
    }
    // More than a sum of eight bytes holds.
    await inferences.add(Array.from({ length: 1_100 }, () => makeInference(nodeId, huge)))
    expect(await inferences.history(nodeId, 0)).toMatchObject([{ requests: 1_100, ...huge }])
  })

  it('the inferences store prunes what is old, but no count, nor what a node still shows', async () => {
    const [quiet, busy] = [await createNode(), await createNode()]
    const old = NOW - 40 * DAY_SECONDS
    const age = (nodeId: string, createdAt: number) => makeInference(nodeId, { createdAt })
    await inferences.add(Array.from({ length: 4 }, (_, index) => age(quiet, old + index)))
    await inferences.add(Array.from({ length: 15 }, (_, index) => age(busy, old + index)))
    await inferences.add([age(busy, NOW), age(busy, NOW - 3)])
    const before = await Promise.all([quiet, busy].map((nodeId) => inferences.stats(nodeId, NOW)))
    await inferences.prune({ before: NOW - 30 * DAY_SECONDS, now: NOW })
    const rowsOf = async (nodeId: string) => {
      const { rows } = await sql<{ count: number }>`
        select count(*) from inferences where node_id = ${nodeId}`.execute(database.queries)
      return rows[0]?.count
    }
    expect([await rowsOf(quiet), await rowsOf(busy)]).toEqual([4, 10])
    expect(await Promise.all([quiet, busy].map((nodeId) => inferences.stats(nodeId, NOW)))).toEqual(
      before,
    )
    expect([await servedOf(quiet), await servedOf(busy)]).toEqual([4, 17])
    const { rows } = await sql<{ count: number }>`
      select count(*) from node_hours where hour_at < ${NOW - 30 * DAY_SECONDS - 3600}::bigint`.execute(
      database.queries,
    )
    expect(rows[0]?.count).toBe(0)
  })
})
