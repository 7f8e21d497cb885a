import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { LARGE_FRAME_BYTES_MAX } from '#src/nodes/protocol/frames.ts'
import { CONTROL, chat, framesOf, statusOf, useAgentStage } from '../../../support/agent-stage.ts'
import { answerWith, textChunk, writeEvents } from '../../../support/scripted-backend.ts'

const stage = useAgentStage()

/** Null before the agent's first own measurement. */
const isTime = (value: unknown) => value === null || Number.isInteger(value)

it('control frames are answered: pings with their nonce, health checks with the load', async () => {
  const { node } = await stage.connect()
  node.send({
    protocol: 'ping-pong',
    data: { ...CONTROL, nonce: 'p1', rtt: 0, ping_streak: 0, miss_streak: 0 },
  })
  node.send({ protocol: 'health-check', data: { ...CONTROL, nonce: 'h1' } })
  await expect.poll(() => node.frames.length).toBe(2)
  expect(node.frames[0]).toMatchObject({
    protocol: 'ping-pong',
    data: { ...CONTROL, message_type: 2, nonce: 'p1', api_ping_time: [expect.toSatisfy(isTime)] },
  })
  expect(node.frames[1]).toMatchObject({
    protocol: 'health-check',
    data: { ...CONTROL, message_type: 2, nonce: 'h1', cpu_percent: 1, gpus: [] },
  })
})

it('an agent reads its load once for many health checks at a time', async () => {
  const counts = { readings: 0 }
  const readLoad = async () => {
    counts.readings += 1
    await sleep(50)
    return { cpuPercent: 1, ramPercent: 2, diskPercent: 3, gpus: [] }
  }
  const { node } = await stage.connect({ readLoad })
  for (let index = 0; index < 100; index++)
    node.send({ protocol: 'health-check', data: { ...CONTROL, nonce: `h${index}` } })
  await expect.poll(() => node.frames.length).toBe(100)
  expect(counts.readings).toBeLessThan(10)
})

it('an agent ignores frames of another node, garbage, and binary frames', async () => {
  const { agent, node } = await stage.connect()
  node.send({ protocol: 'ping-pong', data: { ...CONTROL, node_id: 'other', nonce: 'p1' } })
  for (const text of ['', '{', '[]', '{"protocol":"x","data":1}', '{"id":1}', '\u0000'])
    node.send(text)
  node.sendBytes(Buffer.from([0xff, 0x00]))
  chat(node, 'r1')
  await expect.poll(() => statusOf(node, 'r1')).toBe(2)
  expect(node.frames.every(({ request_id: of }) => of === 'r1')).toBe(true)
  expect(agent.status().connections).toBe(1)
})

it('an agent obeys a frame that asks it to reconnect once nothing runs', async () => {
  stage.script = (response) => {
    writeEvents(response, [textChunk('a')])
    setTimeout(() => answerWith('b')(response, {}, undefined as never), 100)
  }
  const { node } = await stage.connect()
  chat(node, 'r1')
  await expect.poll(() => framesOf(node, 'r1').length).toBe(1)
  const reconnect = { ...CONTROL, message_type: 3, nonce: 'n', reconnect_request: true }
  node.send({ protocol: 'ping-pong', data: reconnect })
  expect(await node.closed).toBe(1000)
  expect(statusOf(node, 'r1')).toBe(2)
  await stage.nodeAt(1)
})

it('a frame over 16 MiB ends the connection, and the agent comes back', async () => {
  const { node } = await stage.connect()
  node.send('x'.repeat(LARGE_FRAME_BYTES_MAX + 1))
  expect(await node.closed).toBe(1009)
  await stage.nodeAt(1)
})
