import { randomBytes, randomUUID } from 'node:crypto'
import { sql } from 'kysely'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createInferencesStore } from '#src/nodes/registry/inferences-store.ts'
import { createNodesStore, NODES_PER_ACCOUNT_MAX } from '#src/nodes/registry/nodes-store.ts'
import { createOwnedNodes, NODE_ID_TRIES } from '#src/nodes/registry/owned-nodes.ts'
import type { Database } from '#src/storage/database.ts'
import { type DatabaseSource, startDatabases } from '../../../support/databases.ts'

let source: DatabaseSource
let database: Database
beforeAll(async () => {
  source = await startDatabases()
  database = await source.open()
})
afterAll(() => source.stop())

/** `draws` are what the randomness gives, the last again and again. Time stands still. */
function createService(draws: readonly Uint8Array[], nowMs = 1_790_000_000_999) {
  let drawn = 0
  const archived: string[] = []
  const service = createOwnedNodes({
    nodes: createNodesStore(database),
    inferences: createInferencesStore(database),
    onArchived: (nodeId) => void archived.push(nodeId),
    now: () => nowMs,
    random: (length) => {
      const bytes = draws[Math.min(drawn++, draws.length - 1)] ?? randomBytes(length)
      expect(bytes).toHaveLength(length)
      return bytes
    },
  })
  return { service, archived, drawn: () => drawn }
}

const repeat = (count: number, draw: Uint8Array) => Array.from({ length: count }, () => draw)

it('a new node gets another id when the drawn id is taken', async () => {
  const [taken, free] = [randomBytes(10), randomBytes(10)]
  const { service, drawn } = createService([taken, taken, taken, free])
  const accountId = randomUUID()
  const first = await service.create({ accountId, name: 'first' })
  const second = await service.create({ accountId: randomUUID(), name: 'second' })
  expect(second).not.toEqual(first)
  expect(drawn()).toBe(4)
  expect(await service.list(accountId)).toMatchObject({ nodes: [{ name_alias: 'first' }] })
})

it('a new node is given up when the randomness gives no new id', async () => {
  const taken = randomBytes(10)
  const { service, drawn } = createService(repeat(NODE_ID_TRIES, taken))
  const accountId = randomUUID()
  await service.create({ accountId, name: 'rig' })
  await expect(service.create({ accountId, name: 'rig' })).rejects.toThrow('expected a new node id')
  expect(drawn()).toBe(1 + NODE_ID_TRIES)
})

it('a new node is refused to an account that has too many', async () => {
  const accountId = randomUUID()
  await sql`
      insert into nodes (node_id, account_id, name, created_at)
      select 'full_' || ${accountId}::text || i, ${accountId}::uuid, 'n', 0
      from generate_series(1, ${NODES_PER_ACCOUNT_MAX}::integer) as i`.execute(database.queries)
  const { service } = createService([randomBytes(10)])
  const refused = service.create({ accountId, name: 'rig' })
  await expect(refused).rejects.toMatchObject({ code: 'limit_reached', status: 403 })
})

it('times of a node are whole seconds, and no duration is below zero when the clock was set back', async () => {
  const accountId = randomUUID()
  const { service } = createService([randomBytes(10)])
  const { node_id: nodeId } = (await service.create({ accountId, name: 'rig' })) as {
    node_id: string
  }
  await createNodesStore(database).markConnected({
    nodeId,
    connectionId: randomUUID(),
    processId: randomUUID(),
    at: 1_790_000_500,
    models: ['m'],
    state: 'RUNNING',
  })
  expect(await service.info({ nodeId, accountId })).toMatchObject({
    node_created_at: 1_790_000_000,
    run_duration_seconds: 0,
  })
  const { service: later } = createService([], 1_790_000_600_999)
  expect(await later.info({ nodeId, accountId })).toMatchObject({ run_duration_seconds: 100 })
})
