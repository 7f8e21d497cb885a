import type { Socket } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import type { WebSocket } from 'ws'
import { DispatchError } from '#src/nodes/runs/dispatch-error.ts'
import {
  type DrawFrame,
  type DrawScript,
  drawAsAsked,
  framesFor,
} from '../../../support/drawing-node.ts'
import { type DrawingStage, openDrawingStage } from '../../../support/drawing-stage.ts'
import { eventually } from '../../../support/nodes-stage.ts'
import type { ScriptedNode } from '../../../support/scripted-node.ts'

const MIB = 1024 * 1024

let stage: DrawingStage
beforeEach(async () => {
  stage = await openDrawingStage({ retriesMax: 0 })
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

/** The connection under a node's WebSocket. */
function rawSocket({ socket }: ScriptedNode): Socket {
  const { _socket: raw } = socket as WebSocket & { readonly _socket: Socket }
  return raw
}

/**
 * Head of an unfinished text frame of so many bytes, with a mask of nothing (RFC 6455 section 5.2).
 */
function frameHead(bytes: number): Buffer {
  const head = Buffer.alloc(14)
  head.set([0x81, 0xff])
  head.writeBigUInt64BE(BigInt(bytes), 2)
  return head
}

/** The first frame that a node is asked. */
async function firstFrame(node: ScriptedNode): Promise<DrawFrame> {
  await eventually(() => node.calls.length > 0, 'the node is asked')
  const [frame] = framesFor(node)
  if (frame === undefined) throw new Error('expected a frame')
  return frame
}

it('a node that was asked for nothing is closed when it begins a large frame, long before its end', async () => {
  const node = await stage.connectDrawer()
  const raw = rawSocket(node)
  raw.write(frameHead(30 * MIB))
  raw.write(Buffer.alloc(2 * MIB, 0x61))
  expect(await node.closed).toMatchObject({
    code: 1008,
    reason: 'Frame is larger than what was asked for',
  })
})

it('a node that was asked for nothing is closed by the head alone of a frame beyond any answer', async () => {
  const node = await stage.connectDrawer()
  rawSocket(node).write(frameHead(33 * MIB))
  expect((await node.closed).code).toBe(1009)
})

const HOSTILE: readonly (readonly [string, DrawScript, string, number])[] = [
  [
    'sends more than what was asked for can have',
    (_, node) =>
      void rawSocket(node).write(Buffer.concat([frameHead(30 * MIB), Buffer.alloc(8 * MIB, 0x61)])),
    'node_lost',
    1008,
  ],
  [
    'sends a million objects',
    ({ request_id }, node) =>
      node.send(`{"request_id":"${request_id}","images":[${'{},'.repeat(500_000)}{}]}`),
    'node_lost',
    1002,
  ],
  ['sends a million brackets', (_, node) => node.send('['.repeat(1_200_000)), 'node_lost', 1002],
]
it.each(HOSTILE)(
  'a node that was asked for one image and %s is closed',
  async (_, script, code, closeCode) => {
    const node = await stage.connectDrawer(script)
    expect(await codeOf(stage.draw())).toBe(code)
    expect((await node.closed).code).toBe(closeCode)
  },
)

it('a node that answers twice has its first answer taken, and the second held against it', async () => {
  const node = await stage.connectDrawer((frame, drawer) => {
    for (let time = 0; time < 2; time++) void drawAsAsked(frame, drawer)
  })
  for (let call = 0; call < 3; call++) expect(await stage.draw()).toHaveLength(1)
  const { request_id: id } = await firstFrame(node)
  for (let time = 0; time < 30; time++)
    node.send({ request_id: id, images: ['A'.repeat(100_000)], error: null })
  expect((await node.closed).code).toBe(1008)
})

it('a node that stops in the middle of its answer frees what was set aside when its time is over', async () => {
  await stage.close()
  stage = await openDrawingStage({ imageMs: 200, drainMs: 200, retriesMax: 0 })
  const node = await stage.connectDrawer((_, drawer) => {
    // Half of what it may send; the rest never comes.
    rawSocket(drawer).write(Buffer.concat([frameHead(MIB + 200_000), Buffer.alloc(MIB, 0x61)]))
  })
  expect(await codeOf(stage.draw({ size: '512x512' }))).toBe('first_token_timeout')
  expect(stage.nodes.status().imageBytes).toBeGreaterThan(0)
  await eventually(() => stage.nodes.status().imageBytes === 0, 'it is given back')
  // A megabyte is what every connection may keep.
  expect(stage.nodes.status().connected).toBe(1)
  rawSocket(node).write(Buffer.alloc(400_000, 0x61))
  expect((await node.closed).code).toBe(1008)
})

it('many nodes that all begin large answers are together kept to what was set aside', async () => {
  await stage.close()
  stage = await openDrawingStage({
    imageBytesMax: 12 * MIB,
    imageMs: 1_000,
    retriesMax: 0,
    waitMs: 100,
  })
  const half: DrawScript = (_, node) =>
    void rawSocket(node).write(Buffer.concat([frameHead(MIB), Buffer.alloc(MIB / 2)]))
  for (let index = 0; index < 8; index++) await stage.connectDrawer(half)
  const codes = Promise.all(
    Array.from({ length: 16 }, () => codeOf(stage.draw({ size: '512x512' }))),
  )
  await eventually(() => stage.nodes.status().imageBytes > 0, 'some are asked')
  expect(stage.nodes.status().imageBytes).toBeLessThanOrEqual(12 * MIB)
  expect((await codes).filter((code) => code === 'no_nodes').length).toBe(14)
})
