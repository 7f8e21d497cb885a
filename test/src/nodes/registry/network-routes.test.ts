import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import {
  GATEWAY_HOOK_TIMEOUT_MS,
  startGateway,
  type TestGateway,
} from '../../../support/gateway.ts'
import { createMeasuredNode, getJson } from '../../../support/register-node.ts'

let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway()
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(() => gateway.stop(), GATEWAY_HOOK_TIMEOUT_MS)

it('the network route shows what all connected nodes do together, without a key', async () => {
  const now = Math.floor(Date.now() / 1000)
  const [first, second] = [
    await createMeasuredNode(gateway, ['small', 'large']),
    await createMeasuredNode(gateway, ['large']),
  ]
  await createMeasuredNode(gateway, ['small'])
  await gateway.connectNode(first, { models: ['small'] })
  await gateway.connectNode(second, { models: ['large'] })
  const served = { promptTokens: 1, completionTokens: 2, totalTokens: 3, timeToFirstTokenMs: 5 }
  await gateway.inferences.add(
    [now, now - 3600, now - 86_400 - 61].map((createdAt) => ({
      id: randomUUID(),
      nodeId: first,
      accountId: null,
      model: 'small',
      ...served,
      createdAt,
    })),
  )
  const { text: key } = await gateway.keys.create({ accountName: 'others', name: 'k' })
  expect(await getJson({ ...gateway, key }, '/v1/network/stats')).toEqual({
    nodes_count: 3,
    connected_nodes_count: 2,
    network_throughput: '200.0 tps',
    inference_count_day: 2,
    network_models_stats: [
      { model_name: 'large', throughput: '100.0 tps' },
      { model_name: 'small', throughput: '100.0 tps' },
    ],
  })
})
