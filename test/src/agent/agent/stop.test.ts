import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import {
  CONTROL,
  chat,
  framesOf,
  lastOf,
  statusOf,
  useAgentStage,
} from '../../../support/agent-stage.ts'
import { FAST_TIMINGS } from '../../../support/run-agent.ts'
import { answerWith, textChunk, writeEvents } from '../../../support/scripted-backend.ts'

const stage = useAgentStage()

it('an agent that is stopped says so, takes nothing new, finishes what runs, and closes', async () => {
  stage.script = async (response) => {
    writeEvents(response, [textChunk('a')])
    await sleep(200)
    writeEvents(response, [textChunk('', 'stop'), '[DONE]'])
    response.end()
  }
  const { agent, node } = await stage.connect()
  chat(node, 'r1')
  await expect.poll(() => framesOf(node, 'r1').length).toBe(1)
  const stopped = agent.stop()
  await expect.poll(() => node.frames).toContainEqual({ protocol: 'drain', data: CONTROL })
  chat(node, 'r2')
  await stopped
  expect(statusOf(node, 'r1')).toBe(2)
  expect(lastOf(node, 'r2')).toMatchObject({ status: 3, error: { status_code: 500 } })
  expect(await node.closed).toBe(1000)
  expect(agent.status()).toMatchObject({ phase: 'stopped', running: 0 })
  await agent.done
  expect(stage.gateway.nodes).toHaveLength(1)
})

it('an agent that is stopped breaks off what runs for too long, and says so', async () => {
  stage.script = (response) => writeEvents(response, [textChunk('a')])
  const { agent, node } = await stage.connect({ timings: { ...FAST_TIMINGS, drainMs: 100 } })
  chat(node, 'r1')
  await expect.poll(() => framesOf(node, 'r1').length).toBe(1)
  await agent.stop()
  expect(lastOf(node, 'r1')).toMatchObject({ status: 3, error: { message: 'the node stopped' } })
  await expect.poll(() => stage.backend.open()).toBe(0)
})

it('an agent that is stopped ends while it waits, while it dials, and a second time', async () => {
  stage.gateway.known.onNode = (node) => node.close(1008, 'no')
  const { agent } = await stage.connect({
    timings: { ...FAST_TIMINGS, backOff: { minMs: 60_000, maxMs: 60_000 } },
  })
  await expect.poll(() => agent.status().phase).toBe('waiting')
  await Promise.all([agent.stop(), agent.stop()])
  await agent.stop()
  await agent.done
})

it('an agent writes no key, no prompt and no answer into its log', async () => {
  stage.script = answerWith('planted-answer')
  const { agent, node } = await stage.connect()
  chat(node, 'r1', { messages: [{ role: 'user', content: 'planted-prompt' }] })
  await expect.poll(() => statusOf(node, 'r1')).toBe(2)
  stage.script = (response) => {
    response.writeHead(400).end('{"error":"planted-prompt"}')
  }
  chat(node, 'r2', { messages: [{ role: 'user', content: 'planted-prompt' }] })
  await expect.poll(() => statusOf(node, 'r2')).toBe(3)
  await agent.stop()
  expect(agent.logLines.length).toBeGreaterThan(2)
  expect(agent.logLines.join('')).not.toMatch(/planted/)
})
