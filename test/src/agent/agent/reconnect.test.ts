import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { useAgentStage } from '../../../support/agent-stage.ts'
import { FAST_TIMINGS } from '../../../support/run-agent.ts'
import { startScriptedNodeGateway } from '../../../support/scripted-node-gateway.ts'

const stage = useAgentStage()

it('an agent whose connection ends comes back, after pauses that grow while it is refused', async () => {
  stage.gateway.known.onNode = (node) => node.close(1008, 'Benchmarking is not completed')
  const backOff = { minMs: 20, maxMs: 10_000 }
  const { agent } = await stage.connect({
    timings: { ...FAST_TIMINGS, backOff },
    random: () => 1,
  })
  await stage.nodeAt(3)
  const pauses = agent.logLines.flatMap((line) => JSON.parse(line).pause_ms ?? [])
  expect(pauses.slice(0, 3)).toEqual([20, 40, 80])
  expect(agent.logLines.join('')).toContain('Benchmarking is not completed')
  // It looks again at what the stage.gateway knows.
  expect(stage.gateway.calls.length).toBeGreaterThan(3 * 3)
})

it('an agent ends a connection over which nothing comes for long', async () => {
  const { agent, node } = await stage.connect({ timings: { ...FAST_TIMINGS, pingMs: 50 } })
  await sleep(200)
  expect(agent.status().connections).toBe(1)
  node.pause()
  await stage.nodeAt(1)
})

it('an agent comes back to a gateway that was away', async () => {
  const { agent } = await stage.connect()
  const { url } = stage.gateway
  await stage.gateway.stop()
  await expect.poll(() => agent.status().phase).not.toBe('connected')
  await sleep(200)
  stage.gateway = await startScriptedNodeGateway(Number(new URL(url).port))
  await stage.nodeAt(0)
  await expect.poll(() => agent.status()).toMatchObject({ phase: 'connected', connections: 2 })
})
