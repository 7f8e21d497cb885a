import { afterEach, expect, it } from 'vitest'
import { ApiError } from '#src/api/errors.ts'
import type { Authenticate } from '#src/nodes/hub/admit-node.ts'
import { createKeyWatch, KEYS_CHECKED_MAX, type KeyedNode } from '#src/nodes/hub/recheck-nodes.ts'
import { createLogger } from '#src/observability/logger.ts'
import { AT_ONCE_MS } from '../../../support/at-once.ts'
import { TEST_ACCOUNT } from '../../../support/memory-registry.ts'
import {
  eventually,
  type NodesStage,
  OTHER_ACCOUNT,
  openNodesStage,
} from '../../../support/nodes-stage.ts'

let stage: NodesStage
afterEach(() => stage.close())

type Scopes = NonNullable<Awaited<ReturnType<Authenticate>>>['scopes']
const NODES: Scopes = ['nodes']
const REASON = { code: 1008, reason: 'API key is no longer valid' }

it.each<readonly [string, Awaited<ReturnType<Authenticate>>]>([
  ['was revoked', null],
  ['lost the scope', { accountId: TEST_ACCOUNT, scopes: ['inference'] }],
  ['is another account’s now', { accountId: OTHER_ACCOUNT, scopes: NODES }],
])('a node whose key %s is closed soon, and no other node is', async (_, later) => {
  let isOver = false
  stage = await openNodesStage(
    {},
    {
      authenticate: async (key) =>
        key === 'old' && isOver ? later : { accountId: TEST_ACCOUNT, scopes: NODES },
    },
  )
  const [first, second] = [await stage.connect({ key: 'old' }), await stage.connect({ key: 'old' })]
  await stage.connect({ key: 'new' })
  const startedAt = performance.now()
  isOver = true
  expect([await first.closed, await second.closed]).toEqual([REASON, REASON])
  expect(performance.now() - startedAt).toBeLessThan(AT_ONCE_MS)
  expect(stage.nodes.status().connected).toBe(1)
})

it('the nodes of a disabled account stay connected, without a warning in each round', async () => {
  const lines: string[] = []
  const closed: string[] = []
  const nodeOf = (key: string) => ({
    key,
    node: { accepted: { accountId: TEST_ACCOUNT }, close: () => void closed.push(key) },
  })
  const keyed = ['disabled', 'valid', 'away'].map((key) => [key, nodeOf(key)] as const)
  const watch = createKeyWatch({
    nodes: new Map(keyed) as unknown as ReadonlyMap<string, KeyedNode>,
    async authenticate(key) {
      if (key === 'disabled') throw new ApiError('account_disabled', 'disabled')
      if (key === 'away' && isAway) throw new Error('away')
      return { accountId: TEST_ACCOUNT, scopes: NODES }
    },
    log: createLogger({ level: 'warn', destination: { write: (line) => void lines.push(line) } }),
  })
  let isAway = false
  const round = async () => {
    watch.step()
    await eventually(() => watch.running() === 0, 'checked')
  }
  for (let count = 0; count < 3; count++) await round()
  expect({ lines, closed }).toEqual({ lines: [], closed: [] })
  isAway = true
  await round()
  expect(lines).toHaveLength(1)
})

it('a node stays connected while keys cannot be checked', async () => {
  let asked = 0
  stage = await openNodesStage(
    { keyCheckMs: 10 },
    {
      async authenticate() {
        asked++
        if (asked > 1) throw new Error('away')
        return { accountId: TEST_ACCOUNT, scopes: NODES }
      },
    },
  )
  await stage.connect()
  await eventually(() => asked > 5, 'asked several times')
  expect(stage.nodes.status().connected).toBe(1)
})

it('keys of connected nodes are checked once a round, however many nodes have the same key', async () => {
  const asked: string[] = []
  let isConnecting = true
  stage = await openNodesStage(
    { keyCheckMs: 200 },
    {
      async authenticate(key) {
        if (!isConnecting) asked.push(key)
        return { accountId: TEST_ACCOUNT, scopes: NODES }
      },
    },
  )
  for (const key of ['a', 'b', 'a', 'a']) await stage.connect({ key })
  isConnecting = false
  await eventually(() => asked.length > 0, 'a round began')
  await new Promise((resolve) => setTimeout(resolve, 20))
  expect(asked.toSorted()).toEqual(['a', 'b'])
})

it(`keys of nodes are checked ${KEYS_CHECKED_MAX} at once, and a round does not overtake the last`, async () => {
  const free = Promise.withResolvers<void>()
  let isConnecting = true
  let [running, most, rounds] = [0, 0, 0]
  stage = await openNodesStage(
    { keyCheckMs: 10 },
    {
      async authenticate() {
        if (isConnecting) return { accountId: TEST_ACCOUNT, scopes: NODES }
        rounds++
        most = Math.max(most, ++running)
        await free.promise
        running--
        return { accountId: TEST_ACCOUNT, scopes: NODES }
      },
    },
  )
  for (let key = 0; key < KEYS_CHECKED_MAX + 8; key++) await stage.connect({ key: `key-${key}` })
  isConnecting = false
  await eventually(() => running === KEYS_CHECKED_MAX, 'as many as may be are checked')
  await new Promise((resolve) => setTimeout(resolve, 50))
  expect({ most, rounds }).toEqual({ most: KEYS_CHECKED_MAX, rounds: KEYS_CHECKED_MAX })
  free.resolve()
  await eventually(() => rounds >= 2 * (KEYS_CHECKED_MAX + 8), 'rounds go on')
})
