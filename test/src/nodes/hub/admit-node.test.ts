import { expect, it } from 'vitest'
import { createNodeAdmission } from '#src/nodes/hub/admit-node.ts'
import { helloHeaders } from '#src/nodes/protocol/hello.ts'
import { createNodeRecords } from '#src/nodes/registry/node-records.ts'
import { recordLog } from '../../../support/chain.ts'
import { createMemoryRegistry, TEST_ACCOUNT } from '../../../support/memory-registry.ts'
import { MODEL, QUICK_LIMITS } from '../../../support/nodes-stage.ts'

it('a node is admitted after the claim of its first connection failed', async () => {
  const registry = createMemoryRegistry()
  registry.register({ nodeId: 'one', benchmarks: { [MODEL]: 1_000 } })
  let failures = 1
  const admit = createNodeAdmission({
    registry,
    authenticate: async () => ({ accountId: TEST_ACCOUNT, scopes: ['nodes'] }),
    records: createNodeRecords(recordLog().log),
    limits: QUICK_LIMITS,
    connected: () => null,
    claimElsewhere: async () => {
      if (failures-- > 0) throw new Error('the bus is closed')
      return true
    },
    unclaim: () => {},
  })
  const hello = { nodeId: 'one', models: [MODEL], modelType: 'LLM' } as const
  const headers = {
    ...helloHeaders({ ...hello, features: new Set() }),
    authorization: 'Bearer key',
  }
  await expect(admit(headers)).rejects.toThrow('the bus is closed')
  expect(await admit(headers)).toMatchObject({ kind: 'admitted' })
})
