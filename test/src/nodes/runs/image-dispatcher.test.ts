import { setTimeout } from 'node:timers/promises'
import sharp from 'sharp'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { readImageFacts } from '#src/images/image-facts.ts'
import { DispatchError } from '#src/nodes/runs/dispatch-error.ts'
import { FAR_OFF_MS } from '../../../support/at-once.ts'
import {
  type DrawScript,
  drawAsAsked,
  drawNothing,
  drawWith,
  framesFor,
  squares,
} from '../../../support/drawing-node.ts'
import { type DrawingStage, IMAGE_MODEL, openDrawingStage } from '../../../support/drawing-stage.ts'
import { TEST_ACCOUNT } from '../../../support/memory-registry.ts'
import { eventually, readAll, textOf } from '../../../support/nodes-stage.ts'
import { drawAsPipeline } from '../../../support/original-node.ts'
import { answerWith } from '../../../support/scripted-node.ts'

let stage: DrawingStage
beforeEach(async () => {
  stage = await openDrawingStage({ imageMs: 3_000, waitMs: FAR_OFF_MS })
})
afterEach(async () => {
  await stage.close()
  expect(stage.nodes.status()).toMatchObject({
    slotsInUse: 0,
    runs: 0,
    queued: 0,
    imageBytes: 0,
    sockets: 0,
  })
})

const codeOf = (call: Promise<unknown>) =>
  call.then(
    () => 'answered',
    (error: unknown) => (error instanceof DispatchError ? error.code : error),
  )
const isIdle = () => {
  const { slotsInUse, runs, imageBytes } = stage.nodes.status()
  return slotsInUse === 0 && runs === 0 && imageBytes === 0
}

it('a call for images is put to a node in the frame of the public client, and answered with what it drew', async () => {
  const node = await stage.connectDrawer()
  const made = await stage.draw({ prompt: 'two foxes', n: 2, size: '512x512' })
  expect(made.map(({ type }) => type)).toEqual(['png', 'png'])
  expect(framesFor(node)).toEqual([
    { request_id: expect.any(String), prompt: 'two foxes', image: null, n: 2, size: '512x512' },
  ])
  expect(isIdle()).toBe(true)
})

it("a call for images counts for its node, with no tokens, and for its caller's account", async () => {
  await stage.connectDrawer(drawAsAsked, { nodeId: 'painter' })
  await stage.draw()
  await eventually(() => stage.registry.served.length === 1, 'it is stored')
  expect(stage.registry.served[0]).toMatchObject({
    nodeId: 'painter',
    model: IMAGE_MODEL,
    accountId: TEST_ACCOUNT,
    promptTokens: 0,
    completionTokens: 0,
    totalTokens: 0,
    timeToFirstTokenMs: null,
  })
})

it('a call for images goes to another node when the first one fails, and is served', async () => {
  const scripts = [drawWith([], 'out of memory'), drawWith(['nonsense']), drawAsAsked]
  for (const script of scripts) await stage.connectDrawer(script)
  for (let call = 0; call < 4; call++) expect(await stage.draw()).toHaveLength(1)
})

it.each([
  ['an error', drawWith([], 'out of memory'), 'node_refused'],
  ['an error without words', drawWith(null, ''), 'node_refused'],
  ['no list', drawWith(null), 'node_failed'],
  ['no image', drawWith([]), 'node_failed'],
  ['one too many', drawWith(squares(2, 256)), 'node_failed'],
  ['a dot', drawWith(squares(1, 8)), 'node_failed'],
  ['nonsense', drawWith(['nonsense']), 'node_failed'],
  ['silence', drawNothing, 'first_token_timeout'],
])('a call for images fails when the only node answers with %s', async (_, script, code) => {
  await stage.connectDrawer(script)
  expect(await codeOf(stage.draw())).toBe(code)
  await eventually(isIdle, 'nothing is held')
})

it('a call for images is refused for an unknown model, and for a model whose nodes are gone', async () => {
  expect(await codeOf(stage.draw())).toBe('unsupported_model')
  const node = await stage.connectDrawer()
  await node.close()
  await eventually(() => stage.nodes.status().connected === 0, 'it is gone')
  expect(await codeOf(stage.draw())).toBe('no_nodes')
  expect(stage.nodes.images.isKnown(IMAGE_MODEL)).toBe(true)
  expect(stage.nodes.images.serves(IMAGE_MODEL)).toBe(false)
})

it('a call for images is refused when its frame is larger than the public client takes', async () => {
  await stage.connectDrawer()
  const image = 'A'.repeat(1024 * 1024)
  expect(await codeOf(stage.draw({ image }))).toBe('request_too_large')
  expect(stage.nodes.images.fits({ prompt: 'a fox', imageBytes: 700_000 })).toBe(true)
  expect(stage.nodes.images.fits({ prompt: 'a fox', imageBytes: 800_000 })).toBe(false)
})

it('a call for images waits for a slot, of which a node has ten, and takes the first that is free', async () => {
  const finish: (() => void)[] = []
  const node = await stage.connectDrawer((frame, drawer) => {
    finish.push(() => drawAsAsked(frame, drawer))
  })
  const calls = Array.from({ length: 11 }, () => stage.draw())
  await eventually(() => node.calls.length === 10, 'ten are under way')
  expect(stage.nodes.status()).toMatchObject({ slotsInUse: 10, queued: 1 })
  finish.shift()?.()
  await eventually(() => node.calls.length === 11, 'the eleventh is')
  for (const end of finish) end()
  for (const made of await Promise.all(calls)) expect(made).toHaveLength(1)
})

it('a call for images is refused, its slot given back, when memory for no further answer is left', async () => {
  await stage.close()
  stage = await openDrawingStage({ imageBytesMax: 12 * 1024 * 1024 })
  const node = await stage.connectDrawer(drawNothing)
  const first = codeOf(stage.draw())
  await eventually(() => node.calls.length === 1, 'one is under way')
  const second = codeOf(stage.draw())
  const third = codeOf(stage.draw())
  expect((await Promise.all([second, third])).sort()).toEqual(['first_token_timeout', 'no_nodes'])
  expect(stage.nodes.status().slotsInUse).toBe(2)
  await first
  await eventually(isIdle, 'nothing is held')
})

/** Reads and sends nothing for this long, then draws. */
const drawBlocked = (blockedMs: number): DrawScript => {
  return async (frame, node) => {
    node.socket.pause()
    await setTimeout(blockedMs, undefined, { ref: false })
    node.socket.resume()
    await drawAsAsked(frame, node)
  }
}
const reopen = async (imageMs: number) => {
  await stage.close()
  stage = await openDrawingStage({ silenceMs: 100, silenceTimeoutMs: 100, imageMs })
}

it('a node that answers no ping while it draws has as long as the limit of images allows', async () => {
  await reopen(5_000)
  await stage.connectDrawer(drawBlocked(800))
  expect(await stage.draw()).toHaveLength(1)
  expect(stage.nodes.status().connected).toBe(1)
})

it('a node that answers no ping is lost once its call is over', async () => {
  await reopen(400)
  await stage.connectDrawer(drawBlocked(FAR_OFF_MS))
  expect(await codeOf(stage.draw())).toBe('first_token_timeout')
  expect(stage.nodes.status().connected).toBe(1)
  await eventually(() => stage.nodes.status().connected === 0, 'it is lost')
})

const leaving = async (headers: Readonly<Record<string, string>>) => {
  const node = await stage.connectDrawer(drawNothing, { headers })
  const abort = new AbortController()
  const call = stage.draw({}, { signal: abort.signal })
  await eventually(() => node.calls.length === 1, 'the node is asked')
  const reason = new Error('left')
  abort.abort(reason)
  await expect(call).rejects.toBe(reason)
  return node
}

it('a caller of images who leaves keeps the slot taken until the node is done', async () => {
  const node = await leaving({})
  expect(stage.nodes.status()).toMatchObject({ slotsInUse: 1, runs: 1 })
  const [frame] = framesFor(node)
  if (frame === undefined) throw new Error('expected a frame')
  await drawAsAsked(frame, node)
  await eventually(isIdle, 'nothing is held')
  expect(stage.registry.served).toHaveLength(0)
})

it('a node that can cancel gets a cancel frame when a caller of images leaves', async () => {
  const node = await leaving({ 'node-features': 'cancel' })
  await eventually(() => node.controls.some(({ protocol }) => protocol === 'cancel'), 'it is told')
  expect(node.controls.at(-1)?.data).toMatchObject({ request_id: framesFor(node)[0]?.request_id })
})

it('a model that one node chats with and another draws with is two models', async () => {
  await stage.connect({ model: IMAGE_MODEL, answer: answerWith('a text') })
  expect(stage.nodes.images.models()).toEqual([])
  expect(await codeOf(stage.draw())).toBe('unsupported_model')
  await stage.connectDrawer()
  expect(stage.nodes.images.models()).toEqual([{ model: IMAGE_MODEL, nodes: 1 }])
  expect(stage.nodes.dispatcher.models()).toEqual([{ model: IMAGE_MODEL, nodes: 1 }])
  for (let call = 0; call < 5; call++) {
    expect(textOf(await readAll(await stage.dispatch({ model: IMAGE_MODEL })))).toBe('a text')
    expect(await stage.draw()).toHaveLength(1)
  }
})

it('a node that draws is asked for a small image before it is given work, and needs no benchmark', async () => {
  const node = await stage.connectDrawer(drawAsAsked, {
    nodeId: 'new',
    registered: { state: null, benchmarks: {} },
  })
  await eventually(() => stage.nodes.images.serves(IMAGE_MODEL), 'it serves')
  expect(framesFor(node)).toMatchObject([{ n: 1, size: '256x256', image: null }])
  await eventually(() => stage.registry.stateOf('new') === 'RUNNING', 'that is stored')
  expect(stage.registry.served).toHaveLength(0)
})

it('a node that ignores the size passes its probe, and may draw files of megabytes', async () => {
  const noise = { type: 'gaussian', mean: 128, sigma: 40 } as const
  const create = { width: 1024, height: 1024, channels: 3, background: '#000', noise } as const
  const drawn = await sharp({ create }).png().toBuffer()
  expect(drawn.length).toBeGreaterThan(1_500_000)
  await stage.close()
  stage = await openDrawingStage({ imageMs: 10_000 })
  await stage.connectDrawer(drawAsPipeline(drawn), {
    registered: { state: null, benchmarks: {} },
  })
  await eventually(() => stage.nodes.images.serves(IMAGE_MODEL), 'it serves')
  const [made] = await stage.draw({ size: '256x256' })
  expect(readImageFacts(made?.bytes ?? new Uint8Array())).toMatchObject({
    width: 256,
    height: 256,
  })
})

it('a node that draws is not set aside for refusals, which may be due to the prompts', async () => {
  await stage.connectDrawer(drawWith([], 'not this prompt'))
  for (let call = 0; call < 4; call++) expect(await codeOf(stage.draw())).toBe('node_refused')
  expect(stage.nodes.images.serves(IMAGE_MODEL)).toBe(true)
})

it('a stop ends images that are under way, and takes no new calls', async () => {
  const node = await stage.connectDrawer(drawNothing)
  const call = codeOf(stage.draw())
  await eventually(() => node.calls.length === 1, 'one is under way')
  await stage.nodes.stop()
  expect(await call).toBe('stopping')
  expect(await codeOf(stage.draw())).toBe('stopping')
})
