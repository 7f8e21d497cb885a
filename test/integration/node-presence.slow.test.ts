import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { NETWORK_AGE_MAX_MS } from '#src/nodes/registry/network-stats.ts'
import { LEASE_SECONDS } from '#src/storage/process-lease.ts'
import { type Deployment, startDeployment } from '../support/deployment/deployment.ts'
import { NATS } from '../support/nats-server.ts'
import { createMeasuredNode, getJson } from '../support/register-node.ts'
import { connectScriptedNode } from '../support/scripted-node.ts'

const MODEL = 'model-b'
/** The delay of a poll on a busy machine. */
const POLL_MS = 3_000

describe.runIf(NATS.isMet)(NATS.title('two gateways on one Postgres, with a node each'), () => {
  let service: Deployment
  const ids: string[] = []
  const callerOf = (at: number) => ({
    url: service.gateways[at]?.origin ?? '',
    key: service.key,
  })
  const connect = async (at: number, nodeId: string) =>
    connectScriptedNode({ ...callerOf(at), nodeId, model: MODEL })
  const countAt = async (at: number) =>
    (await getJson(callerOf(at), '/v1/network/stats')).connected_nodes_count
  const statusOf = async (nodeId: string, at: number) =>
    (await getJson(callerOf(at), `/v1/node/info?node_id=${nodeId}`)).status as string

  beforeAll(async () => {
    service = await startDeployment({ gateways: 2, agents: 0 })
    for (const at of [0, 1]) {
      const nodeId = await createMeasuredNode(callerOf(at), [MODEL])
      await connect(at, nodeId)
      ids.push(nodeId)
    }
  })
  afterAll(() => service?.stop())

  it("two gateways count both nodes, a killed one's until its lease is over and again when it dials", async () => {
    for (const at of [0, 1]) await expect.poll(() => countAt(at)).toBe(2)
    const [killed = '', other = ''] = ids
    await service.gateways[0]?.program.end('SIGKILL')
    const killedAt = performance.now()
    await expect.poll(() => countAt(1), { timeout: 60_000 }).toBe(1)
    const tookMs = performance.now() - killedAt
    expect(tookMs).toBeLessThan(LEASE_SECONDS * 1_000 + NETWORK_AGE_MAX_MS + POLL_MS)
    expect(await statusOf(killed, 1)).toBe('Stopped')
    expect(await statusOf(other, 1)).toMatch(/^Running/)
    service.gateways[0]?.program.start()
    await service.waitUntilReady()
    for (const at of [0, 1]) expect(await countAt(at)).toBe(1)
    expect(await statusOf(other, 0)).toMatch(/^Running/)
    await connect(1, killed)
    for (const at of [0, 1]) await expect.poll(() => countAt(at)).toBe(2)
  })
})
