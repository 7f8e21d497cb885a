import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest'
import { createNodesStore, type NodesStore } from '#src/nodes/registry/nodes-store.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { createProcessesStore } from '#src/storage/processes-store.ts'
import { TEST_ACCOUNT } from '../../../support/memory-registry.ts'
import { MODEL, type NodesStage, openNodesStage } from '../../../support/nodes-stage.ts'
import { createTestDatabase } from '../../../support/test-database.ts'

/** Two gateways' nodes on one Postgres: each with connections and a process of its own. */
let nodeId: string
let database: Database
const closers: (() => Promise<unknown>)[] = []
let clock: { now: number }
let nodes: NodesStore
let enter: (processId: string) => Promise<void>

beforeAll(async () => {
  database = await openDatabase({ url: await createTestDatabase() })
})
afterAll(() => database.close())
beforeEach(async () => {
  nodeId = `roaming-${randomUUID()}`
  clock = { now: 1_000 }
  nodes = createNodesStore(database, () => clock.now)
  enter = (processId) => createProcessesStore(database, () => clock.now).enter(processId, 15)
  const node = { nodeId, accountId: TEST_ACCOUNT }
  await nodes.create({ ...node, name: 'rig', createdAt: 1 })
  const hardware = { operating_system: 'Linux', cpu_model: 'CPU', ram: 1024 } as const
  const unknown = { cpu_count: null, gpu_model: null, gpu_count: null, vram: null, version: null }
  const unmeasured = { power_limit: null, network_download_speed: null, network_upload_speed: null }
  await nodes.saveHardware({ ...node, hardware: { ...hardware, ...unknown, ...unmeasured }, at: 1 })
  await nodes.saveBenchmark({ ...node, model: MODEL, tokensPerSecond: 50, createdAt: 1 })
})
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

/** A gateway's hub, under a process id that may become another. */
async function openHub(): Promise<NodesStage & { process: { id: string } }> {
  const process = { id: randomUUID() }
  await enter(process.id)
  const times = { seenMs: 60_000, abandonedMs: 20, probeIdleMs: 60_000 }
  const stage = await openNodesStage(times, { nodes, processId: () => process.id })
  closers.push(() => stage.close())
  return { ...stage, process }
}

const isConnected = async () => (await nodes.network()).connectedNodes === 1
const connect = async (hub: NodesStage) => {
  const node = await hub.connect({ nodeId, model: MODEL })
  await expect.poll(() => hub.nodes.status().writes).toBe(0)
  return node
}

it('a node that moved to another gateway stays connected when the first one ends it later', async () => {
  const [first, second] = [await openHub(), await openHub()]
  const stale = await connect(first)
  expect(await isConnected()).toBe(true)
  await connect(second)
  stale.socket.terminate()
  await expect.poll(() => first.nodes.status()).toMatchObject({ connected: 0, writes: 0 })
  expect(await isConnected()).toBe(true)
  expect(await nodes.find(nodeId)).toMatchObject({ models: [MODEL] })
})

it('a gateway that starts leaves the nodes of a living one, and ends those of a dead one', async () => {
  const first = await openHub()
  await connect(first)
  await openHub()
  expect(await nodes.endAbandoned()).toBe(0)
  expect(await isConnected()).toBe(true)
  clock.now += 15
  // The first read ends its nodes: what it shows is never older than the lease.
  expect(await isConnected()).toBe(false)
  expect((await nodes.find(nodeId))?.state).toMatch(/^STOPPED/)
})

it('a gateway that was taken for dead has its nodes again once it is among the living', async () => {
  const hub = await openHub()
  await connect(hub)
  clock.now += 15
  await expect.poll(isConnected).toBe(false)
  const id = randomUUID()
  await enter(id)
  hub.process.id = id
  await expect.poll(isConnected).toBe(true)
  expect((await nodes.find(nodeId))?.state).toMatch(/^RUNNING/)
})
