import { afterEach, beforeEach, expect, it } from 'vitest'
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
  answerSilence,
  answerWith,
  finishChunk,
  type ScriptedNode,
  textChunk,
  usageChunk,
} from '../../../support/scripted-node.ts'

let stage: NodesStage
beforeEach(async () => {
  stage = await openNodesStage()
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
  [1002, 'Expected a JSON object', '{"request_id":'],
  [1002, 'Expected a JSON object', '[]'],
  [1002, 'Expected a JSON object', '"text"'],
  [1002, 'Expected a JSON object', ''],
  [1002, 'Expected a JSON object', '\u0000'],
  [1002, 'Unknown protocol', { protocol: 'mine-bitcoin', data: {} }],
  [1002, 'Unknown protocol', { protocol: '__proto__', data: {} }],
  [1002, 'Expected a protocol name and its data', { protocol: 'ping-pong' }],
  [1002, 'Expected a protocol name and its data', { protocol: 7, data: {} }],
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

it('a node is closed with 1003 for a binary frame', async () => {
  const node = await stage.connect()
  node.socket.send(Buffer.from('{}'))
  expect(await node.closed).toEqual({ code: 1003, reason: 'Expected text frames' })
})

it('a node is closed with 1007 for text that is not UTF-8', async () => {
  const node = await stage.connect()
  node.socket.send(Buffer.from([0x22, 0xff, 0x22]), { binary: false })
  expect((await node.closed).code).toBe(1007)
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
  for (let count = 0; count < 3_000; count++) node.send(frame)
  expect(await node.closed).toEqual({ code: 1008, reason: 'Too many unexpected frames' })
  await expectHonestService()
})

it('a node is closed for a flood of pings, by the budget or by the bound of the WebSocket library', async () => {
  const node = await stage.connect()
  for (let count = 0; count < 3_000; count++) node.socket.ping()
  expect([1006, 1008]).toContain((await node.closed).code)
  await expectHonestService()
})

it('a node is closed with 1008 for a few large frames that were not asked for', async () => {
  const node = await stage.connect()
  for (let count = 0; count < 4; count++) node.send({ nonsense: 'x'.repeat(800_000) })
  expect((await node.closed).code).toBe(1008)
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

it('a node that answers in another node’s run changes nothing there', async () => {
  let victimId = ''
  const victim = await stage.connect({
    model: 'victim',
    answer: async (call, node) => {
      victimId = call.id
      await new Promise((resolve) => setTimeout(resolve, 60))
      return answerWith('truth')(call, node)
    },
  })
  const evil = await stage.connect({ model: 'evil' })
  const answered = stage.dispatch({ model: 'victim' })
  await eventually(() => victimId !== '', 'asked')
  evil.sendRun(victimId, { chunk: textChunk('lie'), status: 1 })
  evil.sendRun(victimId, { status: 2 })
  expect(textOf(await readAll(await answered))).toBe('truth')
  expect(victim.calls).toHaveLength(1)
})

it('a node that answers twice gives one answer', async () => {
  const answer: AnswerScript = async (call, node) => {
    await answerWith('once')(call, node)
    await answerWith('twice')(call, node)
  }
  const node = await stage.connect({ answer })
  for (let count = 0; count < 5; count++)
    expect(textOf(await readAll(await stage.dispatch()))).toBe('once')
  expect(stage.nodes.status()).toMatchObject({ connected: 1, slotsInUse: 0 })
  expect(node.calls).toHaveLength(5)
  await eventually(() => stage.registry.served.length === 5, 'counted once each')
})

it('chunks that a node sends after an error are ignored', async () => {
  const answer: AnswerScript = (call, node) => {
    node.sendRun(call.id, { error: { status_code: 500, message: 'no' }, status: 3 })
    node.sendRun(call.id, { chunk: textChunk('yes'), status: 1 })
  }
  await stage.connect({ answer })
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_failed' })
})

it.each([
  ['choices that are none', { choices: [null] }],
  ['a delta that is none', { choices: [{ index: 0, delta: 'a' }] }],
  ['an index that is none', { choices: [{ index: -1, delta: {} }] }],
  ['an index beyond all bounds', { choices: [{ index: 1e9, delta: {} }] }],
  [
    'more choices than there can be',
    { choices: Array.from({ length: 200 }, (_, index) => ({ index, delta: {} })) },
  ],
  ['no choices', { usage: {} }],
  ['a depth that would break who writes it out', deep(2_000)],
  ['a depth that would break who reads it', deep(100_000)],
])('a node that answers with %s has failed', async (_, chunk) => {
  const text = JSON.stringify({ error: null, status: 1 }).slice(1)
  const json = typeof chunk === 'string' ? chunk : JSON.stringify(chunk)
  await stage.connect({
    answer: ({ id }, node) => node.send(`{"request_id":"${id}","chunk":${json},${text}`),
  })
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_failed' })
  await expectHonestService()
})

it('a node that sends empty chunks for ever has sent no token', async () => {
  let isOver = false
  const answer: AnswerScript = async ({ id }, node) => {
    while (!isOver && node.socket.readyState === node.socket.OPEN) {
      node.sendRun(id, { chunk: textChunk(''), status: 1 })
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }
  await stage.connect({ answer })
  await expect(stage.dispatch()).rejects.toMatchObject({ code: 'first_token_timeout' })
  isOver = true
})

it('a node that sends members called __proto__ does no harm', async () => {
  const answer: AnswerScript = ({ id }, node) => {
    node.send(
      `{"request_id":"${id}","error":null,"status":1,"__proto__":{"a":1},` +
        '"chunk":{"__proto__":{"polluted":true},"choices":[{"index":0,"delta":{"content":"x","__proto__":{"polluted":true}},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"__proto__":{"polluted":1}}}}',
    )
    node.sendRun(id, { status: 2 })
  }
  await stage.connect({ answer })
  const [chunk] = await readAll(await stage.dispatch())
  expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
  expect((chunk as { polluted?: unknown }).polluted).toBeUndefined()
  expect(chunk?.usage).toEqual({ prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 })
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

it.each([
  [-1, 5],
  [1.5, 5],
  ['9', 5],
  [null, 5],
  [1e300, 5],
])('a claim of usage with a false count counts as no usage: %j, %j', async (prompt, completion) => {
  await stage.connect({ answer: answerClaiming(prompt, completion) })
  expect((await readAll(await stage.dispatch())).at(-1)?.usage).toBeNull()
  await eventually(() => stage.registry.served.length === 1, 'stored')
  expect(stage.registry.served[0]?.promptTokens).toBeLessThan(100)
})

it('a node that does not read loses only what was on it', async () => {
  const silent = await stage.connect({ answer: answerSilence() })
  const good = await stage.connect({ answer: answerWith('good') })
  const answers = await Promise.all(
    Array.from({ length: 10 }, async () => readAll(await stage.dispatch())),
  )
  expect(answers.map(textOf)).toEqual(Array.from({ length: 10 }, () => 'good'))
  expect(good.calls).toHaveLength(10)
  expect(silent.calls.length).toBeLessThan(10)
})

it('a node that does not take what is sent to it is given up', async () => {
  await stage.close()
  stage = await openNodesStage({
    sendBytesMax: 3_000_000,
    sendStallMs: 1_000,
    sendBytesPerMsMin: 10_000,
    firstTokenMs: 5_000,
    waitMs: 50,
  })
  const node = await stage.connect()
  node.socket.pause()
  const request = {
    model: 'model-a',
    messages: [{ role: 'user', content: 'x'.repeat(1_000_000) }],
  }
  const calls = Array.from({ length: 10 }, () =>
    stage.dispatch({ request }).catch((error: unknown) => error),
  )
  expect(await Promise.all(calls)).toContainEqual(expect.objectContaining({ code: 'node_lost' }))
  expect(stage.nodes.status().connected).toBe(0)
})

it('a caller who reads slowly holds no more than one queue of memory', async () => {
  await stage.close()
  stage = await openNodesStage({ queueBytesMax: 50_000 })
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

it('a claim of several times too many tokens within the bounds is not detected', async () => {
  const answer: AnswerScript = ({ id }, node) => {
    for (const chunk of [textChunk('four'), finishChunk(), usageChunk(9, 20)])
      node.sendRun(id, { chunk, status: 1 })
    node.sendRun(id, { status: 2 })
  }
  await stage.connect({ answer })
  expect((await readAll(await stage.dispatch())).at(-1)?.usage).toMatchObject({
    completion_tokens: 20,
  })
})

it('an answer that is made up is not detected', async () => {
  await stage.connect({ answer: answerWith('I ran no model at all') })
  expect(textOf(await readAll(await stage.dispatch()))).toBe('I ran no model at all')
})
