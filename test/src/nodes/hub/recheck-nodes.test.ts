import { afterEach, expect, it } from 'vitest'
import { eventually, type NodesStage, openNodesStage } from '../../../support/nodes-stage.ts'

let stage: NodesStage
afterEach(() => stage.close())

it.each([
  ['archived', { isArchived: true }, 'Node is archived'],
  ['disabled', { state: 'STOPPED_DISABLED' }, 'Node is disabled'],
] as const)('a connected node that is %s meanwhile is closed', async (_, change, reason) => {
  stage = await openNodesStage({ recheckMs: 50 })
  const node = await stage.connect({ nodeId: 'a' })
  stage.registry.change('a', change)
  expect(await node.closed).toEqual({ code: 1008, reason })
})

it('a connected node that is disabled meanwhile stays so, whatever its state was', async () => {
  stage = await openNodesStage({ recheckMs: 50 })
  const node = await stage.connect({ nodeId: 'a' })
  stage.registry.change('a', { state: 'RUNNING_DISABLED' })
  await node.closed
  await eventually(() => stage.registry.stateOf('a') === 'STOPPED_DISABLED', 'stored')
})

it('a connected node stays when the database is away', async () => {
  stage = await openNodesStage({ recheckMs: 20 })
  await stage.connect({ nodeId: 'a' })
  let asked = 0
  stage.registry.find = async () => {
    asked++
    throw new Error('away')
  }
  await eventually(() => asked > 3, 'asked several times')
  expect(stage.nodes.status().connected).toBe(1)
})

it('a connected node is stored as seen', async () => {
  stage = await openNodesStage({ seenMs: 20 })
  await stage.connect({ nodeId: 'a' })
  await stage.connect({ nodeId: 'b' })
  await eventually(() => stage.registry.writes.includes('seen a,b'), 'seen')
})
