import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, expect, it } from 'vitest'
import type { WebSocket } from 'ws'
import type { JsonObject } from '#attestation/json/value.ts'
import { createNodeChunks, type NodeChunks } from '#src/chat/node-chunks.ts'
import type { NodeAnswer } from '#src/nodes/runs/dispatch.ts'
import { AT_ONCE_MS, FAR_OFF_MS } from '../../../support/at-once.ts'
import {
  eventually,
  MODEL,
  NOTHING_HELD,
  type NodesStage,
  openNodesStage,
  readAll,
  TEST_KEY,
  textOf,
  untilTended,
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
  stage = await openNodesStage({ ...patient, closeTimeoutMs: 3_000, tendMs: 100 })
})
afterEach(async () => {
  await stage.close()
  expect(stage.nodes.status()).toMatchObject(NOTHING_HELD)
})

/** The connection under a node's WebSocket, to send what no library would. */
function rawSocket({ socket }: ScriptedNode): Socket {
  const { _socket: raw } = socket as WebSocket & { readonly _socket: Socket }
  return raw
}

/** Says that it closes (1000), and reads no more, so that its side of the connection stays open. */
function sendClose(node: ScriptedNode): void {
  const raw = rawSocket(node)
  raw.pause()
  raw.write(Buffer.from([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]))
}

it('a node that says it closes, and leaves the connection open, is gone long before the connection is', async () => {
  const node = await stage.connect({ nodeId: 'lingering' })
  sendClose(node)
  await eventually(() => stage.nodes.status().connected === 0, 'no node is connected')
  expect(stage.nodes.status().sockets).toBe(1)
  await eventually(() => stage.registry.stateOf('lingering') === 'STOPPED', 'its going is stored')
})

it('a node that says it closes costs no call its answer while another node is there', async () => {
  const lingering = await stage.connect({ nodeId: 'lingering' })
  await stage.connect({ nodeId: 'staying', answer: answerWith('here') })
  sendClose(lingering)
  for (let call = 0; call < 20; call++)
    expect(textOf(await readAll(await stage.dispatch()))).toBe('here')
  expect(lingering.calls).toHaveLength(0)
})

it('a node that says it closes may dial again at once', async () => {
  await stage.close()
  stage = await openNodesStage({ closeTimeoutMs: FAR_OFF_MS, takeoverMs: FAR_OFF_MS })
  sendClose(await stage.connect({ nodeId: 'again' }))
  const startedAt = performance.now()
  await stage.connect({ nodeId: 'again', answer: answerWith('again') })
  expect(textOf(await readAll(await stage.dispatch()))).toBe('again')
  expect(performance.now() - startedAt).toBeLessThan(AT_ONCE_MS)
})

const request = {
  model: MODEL,
  messages: [{ role: 'user', content: 'x'.repeat(1_000_000) }],
}
const CALLS = 10
const HOUR_MS = 3_600_000

it('a node that reads slowly keeps its connection and its runs, and calls wait for room', async () => {
  await stage.close()
  let aheadMs = 0
  const far = { firstTokenMs: HOUR_MS, tokenMs: HOUR_MS, runMs: HOUR_MS, waitMs: HOUR_MS }
  stage = await openNodesStage(
    { ...far, sendBytesMax: 2_500_000, silenceMs: 30_000, silenceTimeoutMs: 20_000, seenMs: 50 },
    { now: () => performance.now() + aheadMs },
  )
  const node = await stage.connect({ answer: answerWith('read') })
  rawSocket(node).pause()
  const calls = Array.from({ length: CALLS }, async () =>
    textOf(await readAll(await stage.dispatch({ request }))),
  )
  await eventually(() => stage.nodes.status().queued > 0, 'calls wait for room')
  expect(stage.nodes.status().slotsInUse).toBeLessThan(CALLS)
  // Longer than a node may be silent, in steps that the gateway sees.
  for (let step = 0; step < 6; step++) {
    aheadMs += 9_000
    await untilTended(stage)
  }
  expect(stage.nodes.status().connected).toBe(1)
  rawSocket(node).resume()
  expect(await Promise.all(calls)).toEqual(Array.from({ length: CALLS }, () => 'read'))
  expect(stage.nodes.status()).toMatchObject({ connected: 1, queued: 0 })
  expect(node.socket.readyState).toBe(node.socket.OPEN)
})

it('a node that speaks and does not read loses its connection, and holds a bounded memory', async () => {
  await stage.close()
  stage = await openNodesStage({
    sendBytesMax: 2_500_000,
    sendStallMs: 1_000,
    sendBytesPerMsMin: 10_000,
    firstTokenMs: FAR_OFF_MS,
    runMs: FAR_OFF_MS,
    waitMs: FAR_OFF_MS,
  })
  const node = await stage.connect()
  rawSocket(node).pause()
  const speaking = setInterval(() => node.socket.ping(), 50)
  const calls = Array.from({ length: CALLS }, () =>
    stage.dispatch({ request }).catch((error: unknown) => error),
  )
  await eventually(() => stage.nodes.status().queued > 0, 'calls wait for room')
  await eventually(() => stage.nodes.status().connected === 0, 'the node is given up')
  clearInterval(speaking)
  expect(await calls[0]).toMatchObject({ code: 'node_lost' })
})

it("a fault of the gateway itself while it reads a frame ends that node's connection and its call alone", async () => {
  const node = await stage.connect({ model: 'one' })
  await stage.connect({ model: 'other', answer: answerWith('well') })
  const faulty = () => ({
    push() {
      throw new TypeError('a mistake of ours')
    },
    finish() {},
  })
  await expect(
    stage.nodes.dispatcher.dispatch({
      model: 'one',
      request: { model: 'one', messages: [] },
      accountId: null,
      signal: new AbortController().signal,
      openReader: faulty,
    }),
  ).rejects.toMatchObject({ code: 'node_lost' })
  expect((await node.closed).code).toBe(1011)
  expect(textOf(await readAll(await stage.dispatch({ model: 'other' })))).toBe('well')
  expect(stage.nodes.status()).toMatchObject({ slotsInUse: 0, runs: 0, connected: 1 })
})

/** 10,000 WebSocket pongs that answer no ping. */
const PONGS = Buffer.concat(
  Array(10_000).fill(Buffer.concat([Buffer.from([0x8a, 0x8a, 0, 0, 0, 0]), Buffer.alloc(10)])),
)

/** Sends pongs forever, and gives how many were taken. */
function flood(raw: Socket): () => number {
  let taken = 0
  const next = () =>
    raw.write(PONGS, (error) => {
      if (error) return
      taken += 10_000
      next()
    })
  next()
  return () => taken
}

/** Waits until nothing more is taken. A reader that goes on takes for ever. */
async function untilStill(taken: () => number): Promise<void> {
  for (let before = -1, still = 0; still < 3; before = taken()) {
    await sleep(50)
    still = taken() === before ? still + 1 : 0
  }
}

/** Dials by hand and never reads an answer, least of all one to close. */
function dialDeaf(nodeId: string): Socket {
  const { hostname, port } = new URL(stage.url)
  const raw = connect(Number(port), hostname).on('error', () => {})
  const headers = [
    'Host: x',
    'Upgrade: websocket',
    'Connection: Upgrade',
    'Sec-WebSocket-Version: 13',
  ]
  const own = [`Authorization: Bearer ${TEST_KEY}`, `Node-Id: ${nodeId}`, `Model: ${MODEL}`]
  const key = `Sec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}`
  raw.write(`${['GET /v1/node/ws HTTP/1.1', ...headers, key, ...own].join('\r\n')}\r\n\r\n`)
  return raw
}

it('WebSocket pongs that were not asked for are held against the node', async () => {
  const node = await stage.connect()
  rawSocket(node).write(PONGS)
  expect(await node.closed).toEqual({ code: 1008, reason: 'Too many unexpected frames' })
})

it.each([
  ['was closed for them', false],
  ['may not connect', true],
])(
  'pongs are not read from a node that %s, for as long as it does not agree to close',
  async (_, isArchived) => {
    stage.registry.register({
      nodeId: 'deaf',
      state: 'STOPPED',
      benchmarks: { [MODEL]: 50 },
      isArchived,
    })
    const raw = dialDeaf('deaf')
    await eventually(() => stage.nodes.status().sockets === 1, 'it has a WebSocket')
    const taken = flood(raw)
    await untilStill(taken)
    expect(stage.nodes.status()).toMatchObject({ connected: 0, sockets: 1 })
    raw.destroy()
  },
)

/** Sends frames of a run in one write. */
function sendPacket(
  { id, node }: { readonly id: string; readonly node: ScriptedNode },
  frames: readonly Parameters<ScriptedNode['sendRun']>[1][],
): void {
  const raw = rawSocket(node)
  raw.cork()
  for (const frame of frames) node.sendRun(id, frame)
  raw.uncork()
}

/** The batches of an answer, and how it broke off; null when it did not. */
async function readBatches({
  batches,
}: NodeAnswer): Promise<{ readonly texts: readonly string[]; readonly fault: unknown }> {
  const texts: string[] = []
  try {
    for await (const { chunks } of batches) texts.push(textOf(chunks))
  } catch (fault) {
    return { texts, fault }
  }
  return { texts, fault: null }
}

/** Dispatches a call whose answer is read as callers' are. */
function dispatchRead(request: JsonObject = {}): Promise<NodeAnswer> {
  const openReader = (): NodeChunks =>
    createNodeChunks({
      identity: { id: 'chatcmpl-1', created: 1, model: MODEL },
      choicesAsked: typeof request.n === 'number' ? request.n : 1,
    })
  const { signal } = new AbortController()
  return stage.nodes.dispatcher.dispatch({
    model: MODEL,
    accountId: null,
    signal,
    openReader,
    request: { model: MODEL, messages: [], ...request },
  })
}

const running = (chunk: unknown) => ({ chunk, status: 1 }) as const
const FAILED = { error: { status_code: 500, message: 'no' }, status: 3 } as const

it('frames in one packet are given before the error that is among them, and no other node is asked', async () => {
  const answer: AnswerScript = ({ id }, node) =>
    sendPacket({ id, node }, [running(textChunk('a')), running(textChunk('b')), FAILED])
  const nodes = [await stage.connect({ answer }), await stage.connect({ answer })]
  const { texts, fault } = await readBatches(await stage.dispatch())
  expect(texts).toEqual(['ab'])
  expect(fault).toMatchObject({ code: 'node_failed' })
  expect(nodes.flatMap(({ calls }) => calls)).toHaveLength(1)
})

it('frames in one packet may be the whole answer, of new clients and old ones', async () => {
  const answer: AnswerScript = ({ id }, node) =>
    sendPacket({ id, node }, [
      ...[textChunk('a'), finishChunk(), usageChunk(3, 2)].map(running),
      { status: 2 },
    ])
  for (const isOld of [false, true]) {
    const node = await stage.connect({ answer, isOld })
    const chunks = await readAll(await stage.dispatch())
    expect(textOf(chunks)).toBe('a')
    expect(chunks.at(-1)?.usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 2 })
    await node.close()
  }
  await eventually(() => stage.registry.served.length === 2, 'counted once each')
})

it('frames of several calls in one packet go to their own callers', async () => {
  const asked: { readonly id: string; readonly node: ScriptedNode }[] = []
  await stage.connect({ answer: ({ id }, node) => void asked.push({ id, node }) })
  const dispatched = [stage.dispatch(), stage.dispatch()].map(async (answer) =>
    readAll(await answer),
  )
  await eventually(() => asked.length === 2, 'asked')
  const [first, second] = asked
  if (first === undefined || second === undefined) throw new TypeError('expected two calls')
  const frames = ['1', '2'].flatMap((text) =>
    [first, second].map(({ id }) => ({ id, chunk: textChunk(`${text}${id}`) })),
  )
  const raw = rawSocket(first.node)
  raw.cork()
  for (const { id, chunk } of frames) first.node.sendRun(id, running(chunk))
  for (const { id } of [first, second]) first.node.sendRun(id, { status: 2 })
  raw.uncork()
  expect((await Promise.all(dispatched)).map(textOf).toSorted()).toEqual(
    [first, second].map(({ id }) => `1${id}2${id}`).toSorted(),
  )
})

it('frames in one packet are discarded, and cancelled once, when the caller leaves between them', async () => {
  const node = await stage.connect({
    headers: { 'Node-Features': 'cancel' },
    answer: ({ id }, to) => {
      sendPacket({ id, node: to }, [running(textChunk('a')), running(textChunk('b'))])
      setTimeout(() => sendPacket({ id, node: to }, [running(textChunk('c')), { status: 2 }]), 50)
    },
  })
  for await (const _ of (await stage.dispatch()).batches) break
  expect(stage.nodes.status().slotsInUse).toBe(1)
  await eventually(() => stage.nodes.status().slotsInUse === 0, 'drained')
  expect(node.controls.filter(({ protocol }) => protocol === 'cancel')).toHaveLength(1)
})

it('an answer that was refused does not count as served when the node then says that it is done', async () => {
  const nonsense: AnswerScript = ({ id }, node) =>
    sendPacket({ id, node }, [
      running({ choices: [{ index: 7, delta: { content: 'x' }, finish_reason: 'stop' }] }),
      running(usageChunk(1, 1)),
      { status: 2 },
    ])
  await stage.connect({ answer: nonsense })
  await expect(dispatchRead()).rejects.toMatchObject({ code: 'node_failed' })
  await stage.connect({ answer: answerWith('well'), model: 'other', nodeId: 'honest' })
  await readAll(await stage.dispatch({ model: 'other' }))
  const nodeIds = () => stage.registry.served.map(({ nodeId }) => nodeId)
  await eventually(() => nodeIds().includes('honest'), 'stored')
  expect(nodeIds()).toEqual(['honest'])
})
