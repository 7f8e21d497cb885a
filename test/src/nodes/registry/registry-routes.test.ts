import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { NODE_BODY_BYTES_MAX } from '#src/nodes/registry/registry-routes.ts'
import { getPath, outcomeOf } from '../../../support/calls.ts'
import {
  GATEWAY_HOOK_TIMEOUT_MS,
  startGateway,
  type TestGateway,
} from '../../../support/gateway.ts'
import {
  createMeasuredNode,
  createNode,
  getJson,
  NODE_HARDWARE,
  sendBody,
} from '../../../support/register-node.ts'
import { createScriptedDispatcher } from '../../../support/scripted-dispatcher.ts'

let gateway: TestGateway
/** The same gateway, called by another account. */
let stranger: TestGateway
const disconnected: string[] = []

beforeAll(async () => {
  const disconnect = (nodeId: string) => disconnected.push(nodeId) > 0
  gateway = await startGateway({ nodes: { ...createScriptedDispatcher(), disconnect } })
  stranger = {
    ...gateway,
    key: (await gateway.keys.create({ accountName: 'strangers', name: 'k' })).text,
  }
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await gateway.stop()
}, GATEWAY_HOOK_TIMEOUT_MS)

const NODE_PATH = '/v1/dashboard/node'
const NODES_PATH = '/v1/dashboard/nodes'
const INFO_PATH = '/v1/node/info'
const STATS_PATH = '/v1/node/stats'
const BENCHMARK_PATH = '/v1/node/benchmark'

const unixSeconds = () => Math.floor(Date.now() / 1000)
const post = (path: string, body: unknown) => sendBody(gateway, 'POST', path, body)
const put = (body: unknown) => sendBody(gateway, 'PUT', NODE_PATH, body)
const infoOf = (nodeId: string) => getJson(gateway, `${INFO_PATH}?node_id=${nodeId}`)
const statsOf = (nodeId: string) => getJson(gateway, `${STATS_PATH}?node_id=${nodeId}`)

it('the registration of a node reads no body that is larger than any such request', async () => {
  const body = { node_name: 'abc', other: 'x'.repeat(NODE_BODY_BYTES_MAX) }
  expect(await outcomeOf(await post(NODE_PATH, body))).toEqual([413, 'payload_too_large'])
})

it('an update changes what is given, and says what it changed', async () => {
  const nodeId = await createNode(gateway, 'first')
  const update = async (members: object) => {
    const reply = await put({ node_id: nodeId, ...members })
    return [reply.status, await reply.json()]
  }
  const answer = (is_name_updated: boolean, is_archival_status_updated: boolean) => [
    200,
    { is_name_updated, is_archival_status_updated },
  ]
  expect(await update({})).toEqual(answer(false, false))
  expect(await update({ node_name: null, is_archived: null })).toEqual(answer(false, false))
  expect(await update({ node_name: 'second' })).toEqual(answer(true, false))
  expect(await update({ node_name: 'second', is_archived: false })).toEqual(answer(false, false))
  expect(await update({ is_archived: true })).toEqual(answer(false, true))
  expect(await update({ node_name: 'third', is_archived: false })).toEqual(answer(true, true))
  expect(await infoOf(nodeId)).toMatchObject({ name_alias: 'third' })
})

it('an update ends the connection of a node that is archived, and of no other', async () => {
  const [archived, renamed] = [await createNode(gateway), await createNode(gateway)]
  await put({ node_id: renamed, node_name: 'other', is_archived: false })
  await put({ node_id: archived, is_archived: true })
  await put({ node_id: archived, is_archived: false })
  expect(disconnected.filter((nodeId) => [archived, renamed].includes(nodeId))).toEqual([archived])
})

it('node info of a new node has the time when it was registered', async () => {
  const before = unixSeconds()
  const info = await infoOf(await createNode(gateway))
  expect(info.node_created_at).toBeGreaterThanOrEqual(before)
  expect(info.node_created_at).toBeLessThanOrEqual(unixSeconds())
})

it('node info is what the agent reported last', async () => {
  const nodeId = await createNode(gateway)
  for (const ram of [1, 2]) {
    const reply = await post(INFO_PATH, { node_id: nodeId, ...NODE_HARDWARE, ram, unknown: 'x' })
    expect([reply.status, await reply.json()]).toEqual([200, { response: 'OK' }])
  }
  expect(await infoOf(nodeId)).toMatchObject({ ...NODE_HARDWARE, ram: 2, node_id: nodeId })
})

it('node info shows a connection, and its state in words', async () => {
  const nodeId = await createNode(gateway)
  const { nodesStore } = gateway
  const connection = await gateway.connectNode(nodeId, { at: unixSeconds() - 100 })
  await nodesStore.setState(connection, 'RUNNING_BENCHMARKING')
  const info = await infoOf(nodeId)
  expect(info.status).toBe('Running - verifying performance')
  expect([100, 101, 102]).toContain(info.run_duration_seconds)
  await nodesStore.markDisconnected(connection, { at: unixSeconds(), state: 'STOPPED' })
  expect(await infoOf(nodeId)).toMatchObject({ status: 'Stopped', run_duration_seconds: 0 })
})

it('a benchmark can be of a model name of the greatest length, of the widest characters', async () => {
  const nodeId = await createMeasuredNode(gateway, [])
  const model = '🦊'.repeat(512)
  const benchmark = { node_id: nodeId, model_name: model, tokens_per_second: 0 }
  expect((await post(BENCHMARK_PATH, benchmark)).status).toBe(200)
  const path = `${BENCHMARK_PATH}?node_id=${nodeId}&model=${encodeURIComponent(model)}`
  expect(await getJson(gateway, path)).toMatchObject({ model_name: model, tokens_per_second: 0 })
})

it('a benchmark is taken of a hundred models of a node, and no more', async () => {
  const nodeId = await createMeasuredNode(gateway, [])
  const node = { nodeId, accountId: gateway.accountId, tokensPerSecond: 1, createdAt: 1 }
  for (let index = 0; index < 100; index++)
    await gateway.nodesStore.saveBenchmark({ ...node, model: `m${index}` })
  const benchmark = { node_id: nodeId, model_name: 'one more', tokens_per_second: 1 }
  expect(await outcomeOf(await post(BENCHMARK_PATH, benchmark))).toEqual([403, 'limit_reached'])
})

const path = (nodeId: string, query = '') => `/v1/node/stats/history?node_id=${nodeId}${query}`

it('the history of a node has the hours in which it served, its owner’s to read', async () => {
  const nodeId = await createMeasuredNode(gateway, ['m'])
  const hour = unixSeconds() - (unixSeconds() % 3600)
  const inference = {
    nodeId,
    accountId: gateway.accountId,
    model: 'm',
    timeToFirstTokenMs: 250,
    promptTokens: 10,
    completionTokens: 5,
    totalTokens: 15,
  }
  const times = [hour, hour - 3600, hour - 30 * 3600]
  const rows = times.map((createdAt) => ({ ...inference, id: randomUUID(), createdAt }))
  await gateway.inferences.add(rows)
  const described = {
    requests: 1,
    prompt_tokens: 10,
    completion_tokens: 5,
    time_to_first_token: { p50: 0.25, p95: 0.25 },
  }
  const history = await getJson(gateway, path(nodeId))
  expect(history).toMatchObject({ node_id: nodeId })
  expect(history.hours).toEqual([times[1], times[0]].map((start) => ({ start, ...described })))
  expect((await getJson(gateway, path(nodeId, '&hours=720'))).hours).toHaveLength(3)
  expect(await outcomeOf(await getPath(stranger, path(nodeId)))).toEqual([404, 'not_found'])
})

it.each([['&hours=0'], ['&hours=721'], ['&hours=1.5'], ['&hours=1&hours=2']])(
  'the history of a node refuses the query %s',
  async (query) => {
    const reply = await getPath(gateway, path(await createNode(gateway), query))
    expect(await outcomeOf(reply)).toEqual([422, ['query.hours']])
  },
)

it('node stats are what the node served: in all, in the last day, and its last calls', async () => {
  const nodeId = await createMeasuredNode(gateway, ['new'])
  const now = unixSeconds()
  const makeInference = (index: number, createdAt: number) => ({
    id: randomUUID(),
    nodeId,
    accountId: gateway.accountId,
    model: 'new',
    promptTokens: 10,
    completionTokens: index,
    totalTokens: 10 + index,
    timeToFirstTokenMs: index % 2 === 0 ? 250 : 750,
    createdAt,
  })
  const today = [makeInference(1, now - 2), makeInference(2, now - 1)]
  await gateway.inferences.add([makeInference(99, now - 86_401), ...today])
  const stats = await statsOf(nodeId)
  expect(stats).toMatchObject({
    requests_served: 3,
    requests_served_day: 2,
    average_time_to_first_token: 0.5,
    benchmark_tokens_per_second: 100,
  })
  expect(stats.benchmark_created_at).toBeGreaterThanOrEqual(now - 10)
  expect(stats.completed_inferences).toMatchObject([
    { completion_tokens: 2, total_tokens: 12, created_at: now - 1 },
    { completion_tokens: 1, total_tokens: 11, created_at: now - 2 },
    {},
  ])
})

it("the list of nodes gives the account's own nodes with all their members", async () => {
  const { text: key } = await gateway.keys.create({ accountName: 'owners', name: 'k' })
  const owner = { ...gateway, key }
  expect(await getJson(owner, NODES_PATH)).toEqual({ response: 'OK', nodes: [] })
  const nodeId = await createMeasuredNode(owner, ['m'])
  const { nodesStore } = gateway
  const now = unixSeconds()
  const earlier = await gateway.connectNode(nodeId, { at: now - 500 })
  await nodesStore.markDisconnected(earlier, { at: now - 400, state: 'STOPPED' })
  const connection = await gateway.connectNode(nodeId, { at: now - 30 })
  const served = {
    model: 'm',
    promptTokens: 1,
    completionTokens: 2,
    totalTokens: 3,
    timeToFirstTokenMs: null,
  }
  const inference = { id: randomUUID(), nodeId, accountId: null, ...served, createdAt: now }
  await gateway.inferences.add([inference])
  const { response, nodes } = await getJson(owner, NODES_PATH)
  expect([response, nodes]).toEqual([
    'OK',
    [
      {
        node_id: nodeId,
        ...NODE_HARDWARE,
        name_alias: 'my node',
        status: 'Running',
        run_duration_seconds: expect.any(Number),
        total_uptime_seconds: expect.any(Number),
        requests_served: 1,
        requests_served_day: 1,
        benchmark_tokens_per_second: 100,
        is_archived: false,
        is_connected: true,
        models: [{ model_name: 'm', tokens_per_second: 100 }],
        node_created_at: expect.any(Number),
      },
    ],
  ])
  const [item] = nodes as readonly Record<string, number>[]
  expect([30, 31, 32]).toContain(item?.run_duration_seconds)
  expect(item?.total_uptime_seconds).toBe(100 + (item?.run_duration_seconds ?? 0))
  expect(Object.keys(item ?? {}).slice(-4)).toEqual([
    'is_archived',
    'node_created_at',
    'is_connected',
    'models',
  ])
  await nodesStore.markDisconnected(connection, { at: now, state: 'STOPPED' })
})

it.each([
  ['GET info', (nodeId: string) => getPath(stranger, `${INFO_PATH}?node_id=${nodeId}`)],
  ['GET stats', (nodeId: string) => getPath(stranger, `${STATS_PATH}?node_id=${nodeId}`)],
  [
    'GET benchmark',
    (nodeId: string) => getPath(stranger, `${BENCHMARK_PATH}?node_id=${nodeId}&model=m`),
  ],
  [
    'POST info',
    (nodeId: string) =>
      sendBody(stranger, 'POST', INFO_PATH, { node_id: nodeId, ...NODE_HARDWARE, ram: 1 }),
  ],
  [
    'POST benchmark',
    (nodeId: string) =>
      sendBody(stranger, 'POST', BENCHMARK_PATH, {
        node_id: nodeId,
        model_name: 'm',
        tokens_per_second: 1,
      }),
  ],
  [
    'PUT',
    (nodeId: string) =>
      sendBody(stranger, 'PUT', NODE_PATH, {
        node_id: nodeId,
        node_name: 'mine now',
        is_archived: true,
      }),
  ],
])(
  "another account's node answers %s as if it did not exist, and stays as it is",
  async (_, call) => {
    const nodeId = await createMeasuredNode(gateway, ['m'])
    const before = await infoOf(nodeId)
    const [foreign, unknown] = [await call(nodeId), await call('no_such_node_at_all')]
    expect(await foreign.text()).toBe(await unknown.clone().text())
    expect(await outcomeOf(unknown)).toEqual([404, 'not_found'])
    expect(foreign.status).toBe(404)
    expect(await infoOf(nodeId)).toEqual(before)
    expect(disconnected).not.toContain(nodeId)
  },
)

it.each([
  [`${INFO_PATH}?node_id=%00`, ['query.node_id']],
  [`${INFO_PATH}?node_id=${'x'.repeat(129)}`, ['query.node_id']],
  [`${BENCHMARK_PATH}?node_id=a&model=%00`, ['query.model']],
])('every route of nodes refuses GET %s', async (path, locs) => {
  expect(await outcomeOf(await getPath(gateway, path))).toEqual([422, locs])
})
