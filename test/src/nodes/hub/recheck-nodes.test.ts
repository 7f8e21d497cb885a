import { afterEach, expect, it } from 'vitest'
import { ApiError } from '#src/api/errors.ts'
import type { Authenticate } from '#src/nodes/hub/admit-node.ts'
import { createKeyWatch, KEYS_CHECKED_MAX, type KeyedNode } from '#src/nodes/hub/recheck-nodes.ts'
import { createLogger } from '#src/observability/logger.ts'
import { TEST_ACCOUNT } from '../../../support/memory-registry.ts'
import {
  eventually,
  type NodesStage,
  OTHER_ACCOUNT,
  openNodesStage,
} from '../../../support/nodes-stage.ts'

let stage: NodesStage | null = null
afterEach(async () => {
  await stage?.close()
  stage = null
})

const VALID = { accountId: TEST_ACCOUNT, scopes: ['nodes'] } as const
const REASON = { code: 1008, reason: 'API key is no longer valid' }

/** A watch on nodes with these keys. */
function watchKeys(keys: readonly string[], authenticate: Authenticate) {
  const lines: string[] = []
  const closed: string[] = []
  const keyed = keys.map((key, at) => {
    const node = { accepted: { accountId: TEST_ACCOUNT }, close: () => void closed.push(key) }
    return [`node ${at}`, { key, node }] as const
  })
  const watch = createKeyWatch({
    nodes: new Map(keyed) as unknown as ReadonlyMap<string, KeyedNode>,
    authenticate,
    log: createLogger({ level: 'warn', destination: { write: (line) => void lines.push(line) } }),
  })
  const round = async () => {
    watch.step()
    await eventually(() => watch.running() === 0, 'checked')
  }
  return { watch, round, lines, closed }
}

it.each<readonly [string, Awaited<ReturnType<Authenticate>>]>([
  ['was revoked', null],
  ['lost the scope', { accountId: TEST_ACCOUNT, scopes: ['inference'] }],
  ['is another account’s now', { ...VALID, accountId: OTHER_ACCOUNT }],
])('a node whose key %s is closed soon, and no other node is', async (_, later) => {
  let isOver = false
  const authenticate: Authenticate = async (key) => (key === 'old' && isOver ? later : VALID)
  stage = await openNodesStage({}, { authenticate })
  const [first, second] = [await stage.connect({ key: 'old' }), await stage.connect({ key: 'old' })]
  await stage.connect({ key: 'new' })
  isOver = true
  expect([await first.closed, await second.closed]).toEqual([REASON, REASON])
  expect(stage.nodes.status().connected).toBe(1)
})

it('the nodes of a disabled account stay connected, without a warning in each round', async () => {
  let isAway = false
  const { round, lines, closed } = watchKeys(['disabled', 'valid', 'away'], async (key) => {
    if (key === 'disabled') throw new ApiError('account_disabled', 'disabled')
    if (key === 'away' && isAway) throw new Error('away')
    return VALID
  })
  for (let count = 0; count < 3; count++) await round()
  expect({ lines, closed }).toEqual({ lines: [], closed: [] })
  isAway = true
  await round()
  expect(lines).toHaveLength(1)
  expect(closed).toEqual([])
})

it('keys of connected nodes are checked once a round, however many nodes have the same key', async () => {
  const asked: string[] = []
  const { round } = watchKeys(['a', 'b', 'a', 'a'], async (key) => {
    asked.push(key)
    return VALID
  })
  await round()
  expect(asked.toSorted()).toEqual(['a', 'b'])
})

it('the keys of nodes are checked a bounded number at once, and a round does not overtake the last', async () => {
  const free = Promise.withResolvers<void>()
  let asked = 0
  const keys = Array.from({ length: KEYS_CHECKED_MAX + 8 }, (_, key) => `key-${key}`)
  const { watch, round } = watchKeys(keys, async () => {
    asked++
    await free.promise
    return VALID
  })
  for (let step = 0; step < 3; step++) watch.step()
  expect([asked, watch.running()]).toEqual([KEYS_CHECKED_MAX, KEYS_CHECKED_MAX])
  free.resolve()
  await eventually(() => watch.running() === 0, 'the round is over')
  expect(asked).toBe(keys.length)
  await round()
  expect(asked).toBe(2 * keys.length)
})

it.each([
  ['archived', { isArchived: true }, 'Node is archived'],
  ['disabled', { state: 'STOPPED_DISABLED' }, 'Node is disabled'],
] as const)('a connected node that is %s meanwhile is closed', async (_, change, reason) => {
  const opened = await openNodesStage({ recheckMs: 50 })
  stage = opened
  const node = await opened.connect({ nodeId: 'a' })
  opened.registry.change('a', change)
  expect(await node.closed).toEqual({ code: 1008, reason })
})

it('a connected node that is disabled meanwhile stays so, whatever its state was', async () => {
  const opened = await openNodesStage({ recheckMs: 50 })
  stage = opened
  const node = await opened.connect({ nodeId: 'a' })
  opened.registry.change('a', { state: 'RUNNING_DISABLED' })
  await node.closed
  await eventually(() => opened.registry.stateOf('a') === 'STOPPED_DISABLED', 'stored')
})

it('a connected node stays when the database is away', async () => {
  const opened = await openNodesStage({ recheckMs: 20 })
  stage = opened
  await opened.connect({ nodeId: 'a' })
  let asked = 0
  opened.registry.find = async () => {
    asked++
    throw new Error('away')
  }
  await eventually(() => asked > 3, 'asked several times')
  expect(opened.nodes.status().connected).toBe(1)
})

it('a connected node is stored as seen', async () => {
  const opened = await openNodesStage({ seenMs: 20 })
  stage = opened
  await opened.connect({ nodeId: 'a' })
  await opened.connect({ nodeId: 'b' })
  await eventually(() => opened.registry.writes.includes('seen a,b'), 'seen')
})
