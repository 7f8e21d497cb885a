import { afterEach, beforeEach, expect, it } from 'vitest'
import { FAR_OFF_MS } from '../../../support/at-once.ts'
import {
  eventually,
  NOTHING_HELD,
  type NodesStage,
  openNodesStage,
  readAll,
  textOf,
} from '../../../support/nodes-stage.ts'
import {
  type AnswerScript,
  answerWith,
  finishChunk,
  type ScriptedNode,
  textChunk,
  usageChunk,
} from '../../../support/scripted-node.ts'

let stage: NodesStage
beforeEach(async () => {
  const patient = { firstTokenMs: FAR_OFF_MS, tokenMs: FAR_OFF_MS }
  stage = await openNodesStage({ ...patient, strayBurst: 200, strayPerSecond: 1 })
})
afterEach(async () => {
  await stage.close()
  expect(stage.nodes.status()).toMatchObject(NOTHING_HELD)
})

/** An honest node still serves, no matter what the other one did. */
async function expectHonestService(): Promise<void> {
  const honest = await stage.connect({ model: 'honest', answer: answerWith('all is well') })
  expect(textOf(await readAll(await stage.dispatch({ model: 'honest' })))).toBe('all is well')
  expect(honest.calls).toHaveLength(1)
}

it.each([
  [1002, 'Expected a JSON object', 'garbage'],
  [1002, 'Unknown protocol', { protocol: '__proto__', data: {} }],
  [1002, 'Expected a protocol name and its data', { protocol: 'ping-pong' }],
  [1002, 'Unknown protocol version', { protocol: 'ping-pong', data: { protocol_version: '2.0' } }],
  [1002, 'Expected a node_id', { protocol: 'ping-pong', data: { protocol_version: '1.0' } }],
  [
    1002,
    'Expected a PONG',
    {
      protocol: 'ping-pong',
      data: { protocol_version: '1.0', node_id: 'evil', message_type: 1, nonce: 'x' },
    },
  ],
  [
    1002,
    'Expected a health answer',
    {
      protocol: 'health-check',
      data: { protocol_version: '1.0', node_id: 'evil', message_type: 2, nonce: 'x' },
    },
  ],
])('a node is closed with %i "%s" for %j', async (code, reason, frame) => {
  const node = await stage.connect({ nodeId: 'evil' })
  node.send(frame)
  expect(await node.closed).toEqual({ code, reason })
  await expectHonestService()
})

it.each([
  [1003, 'a binary frame', Buffer.from('{}'), true],
  [1007, 'text that is not UTF-8', Buffer.from([0x22, 0xff, 0x22]), false],
])('a node is closed with %i for %s', async (code, _, bytes, binary) => {
  const node = await stage.connect()
  node.socket.send(bytes, { binary })
  expect((await node.closed).code).toBe(code)
})

it('a node is closed with 1009 for a frame that is too large, and its runs end', async () => {
  const answer: AnswerScript = ({ id }, node) => {
    node.sendRun(id, { chunk: textChunk('x'.repeat(1024 * 1024)), status: 1 })
  }
  const node = await stage.connect({ answer })
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_lost' })
  expect((await node.closed).code).toBe(1009)
  await expectHonestService()
})

it.each([
  [
    'frames of runs it does not have',
    { request_id: 'made-up', chunk: null, error: null, status: 2 },
  ],
  ['objects that mean nothing', { hello: 'world' }],
  ['pongs nobody asked for', pong('evil')],
  ['control frames of other nodes', pong('somebody-else')],
])('a node is closed with 1008 for a flood of %s', async (_, frame) => {
  const node = await stage.connect({ nodeId: 'evil' })
  for (let count = 0; count < 300; count++) node.send(frame)
  expect(await node.closed).toEqual({ code: 1008, reason: 'Too many unexpected frames' })
  await expectHonestService()
})

function pong(nodeId: string) {
  const data = {
    protocol_version: '1.0',
    message_type: 2,
    node_id: nodeId,
    nonce: 'x',
    api_ping_time: [1],
  }
  return { protocol: 'ping-pong', data }
}

it.each([
  ['a depth that would break who writes it out', deep(2_000)],
  ['a depth that would break who reads it', deep(100_000)],
])('a node that answers with %s has failed', async (_, chunk) => {
  await stage.connect({
    answer: ({ id }, node) =>
      node.send(`{"request_id":"${id}","chunk":${chunk},"error":null,"status":1}`),
  })
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_failed' })
  await expectHonestService()
})

/** A chunk with arrays in arrays, as text: writing it is easier than holding it. */
function deep(depth: number): string {
  return `{"choices":[{"index":0,"delta":{"content":"x","deep":${'['.repeat(depth)}${']'.repeat(depth)}}}]}`
}

const answerClaiming =
  (prompt: unknown, completion: unknown): AnswerScript =>
  ({ id }, node) => {
    for (const chunk of [textChunk('four'), finishChunk(), usageChunk(prompt, completion)])
      node.sendRun(id, { chunk, status: 1 })
    node.sendRun(id, { status: 2 })
  }

it.each([
  [1e15, 1e15],
  [Number.MAX_SAFE_INTEGER, 1],
  [5, 1e12],
])(
  'a claim of usage is cut to what request and answer can hold: %d, %d',
  async (prompt, completion) => {
    await stage.connect({ answer: answerClaiming(prompt, completion) })
    const usage = (await readAll(await stage.dispatch())).at(-1)?.usage
    // A request of 63 bytes plus 1,024; four letters of 3 bytes at most, two chunks that say
    // something, and 16.
    expect(usage).toMatchObject({
      prompt_tokens: Math.min(prompt, 1_087),
      completion_tokens: Math.min(completion, 30),
    })
  },
)

it('a caller who reads slowly holds no more than one queue of memory', async () => {
  await stage.close()
  stage = await openNodesStage({ queueBytesMax: 50_000, firstTokenMs: FAR_OFF_MS })
  const flood: AnswerScript = async ({ id }, node) => {
    for (let count = 0; count < 200; count++)
      node.sendRun(id, { chunk: textChunk('x'.repeat(1_000)), status: 1 })
    node.sendRun(id, { status: 2 })
  }
  const node: ScriptedNode = await stage.connect({ answer: flood })
  const { batches } = await stage.dispatch()
  await eventually(() => stage.nodes.status().runs === 0, 'all was sent')
  const got: unknown[] = []
  const read = (async () => {
    for await (const { chunks } of batches) got.push(...chunks)
  })()
  await expect(read).rejects.toMatchObject({ code: 'caller_too_slow' })
  expect(got.length).toBeLessThan(60)
  expect(node.socket.readyState).toBe(node.socket.OPEN)
  expect(stage.nodes.status()).toMatchObject({ serving: 1, slotsInUse: 0 })
})

it('a caller is not charged for chunks that say nothing, nor for more prompt than there was', async () => {
  const nothing = textChunk('')
  await stage.connect({
    answer: ({ id }, node) => {
      for (let count = 0; count < 1_000; count++) node.sendRun(id, { chunk: nothing, status: 1 })
      for (const chunk of [textChunk('yes'), finishChunk(), usageChunk(1e6, 1e6)])
        node.sendRun(id, { chunk, status: 1 })
    },
  })
  const [last] = (await readAll(await stage.dispatch())).slice(-1)
  const { prompt_tokens: prompt, completion_tokens: completion } = (last?.usage ?? {}) as Record<
    string,
    number
  >
  expect(prompt).toBeLessThan(1_200)
  expect(completion).toBe(9 + 2 + 16)
})
