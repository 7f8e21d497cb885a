import type { Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { WebSocket } from 'ws'
import { outcomeOf } from '../support/calls.ts'
import {
  type DrawScript,
  drawAsAsked,
  drawing,
  drawNothing,
  drawWith,
  framesFor,
  squares,
} from '../support/drawing-node.ts'
import { GATEWAY_HOOK_TIMEOUT_MS } from '../support/gateway.ts'
import { pngOf } from '../support/image-files.ts'
import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import type { ScriptedNode } from '../support/scripted-node.ts'

const LIMITS = {
  imageMs: 500,
  drainMs: 300,
  waitMs: 200,
  tickMs: 20,
  tendMs: 50,
  closeTimeoutMs: 300,
  retriesMax: 0,
  asideMs: 50,
  asideMaxMs: 50,
}
const MIB = 1024 * 1024
/** No caller waits longer, for any behaviour of a node. */
const CALL_MAX_MS = 5_000

let stage: PlainStage
let honest: ScriptedNode
beforeAll(async () => {
  stage = await openPlainStage({ limits: LIMITS })
  honest = await stage.connect({ model: 'honest', ...drawing(drawAsAsked) })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await stage.stop()
  expect(stage.nodes.status()).toMatchObject({ slotsInUse: 0, runs: 0, imageBytes: 0, sockets: 0 })
}, GATEWAY_HOOK_TIMEOUT_MS)

async function draw(model: string, more: object = {}): Promise<Response> {
  const startedAt = performance.now()
  const reply = await fetch(`${stage.gateway.url}/v1/images/generations`, {
    method: 'POST',
    headers: { authorization: `Bearer ${stage.gateway.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model,
      prompt: 'a fox',
      size: '256x256',
      response_format: 'b64_json',
      ...more,
    }),
  })
  expect(performance.now() - startedAt).toBeLessThan(CALL_MAX_MS)
  return reply
}

/** The connection under a node's WebSocket. */
function rawSocket({ socket }: ScriptedNode): Socket {
  const { _socket: raw } = socket as WebSocket & { readonly _socket: Socket }
  return raw
}

/**
 * Begins a text frame of `bytes` bytes, with a mask of zeros (RFC 6455 section 5.2), and sends
 * `sent` of them.
 */
const beginFrame =
  (bytes: number, sent: number): DrawScript =>
  (_, node) => {
    const head = Buffer.alloc(14)
    head.set([0x81, 0xff])
    head.writeBigUInt64BE(BigInt(bytes), 2)
    rawSocket(node).write(Buffer.concat([head, Buffer.alloc(sent, 0x61)]))
  }

const sendText =
  (textOf: (id: string) => string): DrawScript =>
  ({ request_id: id }, node) =>
    node.send(textOf(id))

/** A PNG with a valid header, and noise for pixels. */
const garbage = Buffer.concat([pngOf(256).subarray(0, 41), Buffer.alloc(5_000, 0x5a)]).toString(
  'base64',
)
const withPage = Buffer.concat([pngOf(256), Buffer.from('<script>')]).toString('base64')

const HOSTILE: readonly (readonly [string, DrawScript, string])[] = [
  ['sends a PNG of noise', drawWith([garbage]), 'node_error'],
  ['sends a page behind its PNG', drawWith([withPage]), 'node_error'],
  ['sends what is no base64', drawWith(['???']), 'node_error'],
  ['sends too many images', drawWith(squares(3, 256)), 'node_error'],
  ['sends none', drawWith([]), 'node_error'],
  ['sends a dot', drawWith(squares(1, 8)), 'node_error'],
  ['sends numbers', drawWith([1, 2, 3]), 'node_error'],
  ['sends an error with its images', drawWith(squares(1, 256), 'sorry'), 'node_error'],
  ['sends an object for an error', drawWith([], { code: 1 }), 'node_error'],
  ['sends a frame beyond all bounds', beginFrame(40 * MIB, 0), 'node_error'],
  ['sends a frame beyond what was asked for', beginFrame(31 * MIB, 14 * MIB), 'node_error'],
  ['stops within its frame', beginFrame(MIB, 1_000), 'node_timeout'],
  ['never answers', drawNothing, 'node_timeout'],
  ['answers no request', sendText(() => '{"images":[]}'), 'node_timeout'],
  [
    'answers another request',
    sendText((id) => `{"request_id":"${id}x","images":[]}`),
    'node_timeout',
  ],
  ['sends two million brackets', sendText(() => '['.repeat(2 * MIB)), 'node_error'],
  [
    'sends a million objects for images',
    sendText((id) => `{"request_id":"${id}","images":[${'{},'.repeat(MIB)}{}]}`),
    'node_error',
  ],
  ['sends bytes', (_, node) => node.socket.send(Buffer.alloc(9)), 'node_error'],
  ['hangs up', (_, node) => node.socket.terminate(), 'node_error'],
]

describe.each(HOSTILE)('a node that %s', (_, script, code) => {
  it('a hostile node costs its callers a clear error, and callers of other nodes nothing', async () => {
    const model = `hostile-${code}-${HOSTILE.findIndex(([, found]) => found === script)}`
    const node = await stage.connect({ model, ...drawing(script) })
    const [status, error] = await outcomeOf(await draw(model))
    expect([status, error]).toEqual([code === 'node_timeout' ? 504 : 502, code])
    expect((await draw('honest')).status).toBe(200)
    expect(honest.socket.readyState).toBe(honest.socket.OPEN)
    node.socket.terminate()
  })
})

it(
  'a caller gets the images of another node when the first one is hostile',
  async () => {
    const other = await openPlainStage({ limits: { ...LIMITS, retriesMax: 2 } })
    try {
      await other.connect({ model: 'mixed', ...drawing(drawWith([garbage])) })
      await other.connect({ model: 'mixed', ...drawing(drawAsAsked) })
      for (let call = 0; call < 3; call++) {
        const reply = await fetch(`${other.gateway.url}/v1/images/generations`, {
          method: 'POST',
          headers: {
            authorization: `Bearer ${other.gateway.key}`,
            'content-type': 'application/json',
          },
          body: JSON.stringify({ model: 'mixed', prompt: 'a fox', size: '256x256' }),
        })
        expect(reply.status).toBe(200)
      }
    } finally {
      await other.stop()
    }
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)

it('a second answer of a node to one request is given to no caller', async () => {
  const node = await stage.connect({
    model: 'twice',
    ...drawing((frame, drawer) => {
      void drawAsAsked(frame, drawer)
      drawer.send({ request_id: frame.request_id, images: squares(1, 512), error: null })
    }),
  })
  for (let call = 0; call < 3; call++) {
    const { data } = (await (await draw('twice')).json()) as {
      data: readonly { b64_json: string }[]
    }
    expect(data.map(({ b64_json }) => b64_json)).toEqual(squares(1, 256))
  }
  expect(framesFor(node)).toHaveLength(3)
})
