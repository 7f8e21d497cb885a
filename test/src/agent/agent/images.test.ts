import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { readImageFacts } from '#src/images/image-facts.ts'
import { createDemoServer } from '#src/local/demo/server.ts'
import { CONTROL, chat, framesOf, lastOf, useAgentStage } from '../../../support/agent-stage.ts'
import { pngOf } from '../../../support/image-files.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../../../support/scripted-endpoint.ts'
import type { NodeSocket } from '../../../support/scripted-node-gateway.ts'

const stage = useAgentStage()
/** An image server that answers by its script. */
let scripted: ScriptedEndpoint
const demo = createDemoServer({ delayMs: 0, now: Date.now })
let demoUrl = ''
beforeAll(async () => {
  scripted = await startScriptedEndpoint()
  demo.listen(0, '127.0.0.1')
  await once(demo, 'listening')
  demoUrl = `http://127.0.0.1:${(demo.address() as AddressInfo).port}`
})
afterAll(async () => {
  demo.closeAllConnections()
  demo.close()
  await scripted.stop()
})

const DRAWS = { nodeType: 'DIFFUSION', models: ['demo/image'] } as const
const ASKED = { prompt: 'a red fox', image: null, n: 1, size: '256x256' }
const draw = (node: NodeSocket, id: string, more: object = {}) =>
  node.send({ request_id: id, ...ASKED, ...more })
const connect = async (backendUrl: string) => (await stage.connect({ ...DRAWS, backendUrl })).node

it('an agent of type DIFFUSION connects as one, with its model, and without a benchmark', async () => {
  const node = await connect(demoUrl)
  expect(node.headers).toMatchObject({ 'model-type': 'DIFFUSION', model: 'demo/image' })
  expect(stage.gateway.calls.some(({ path }) => path.startsWith('/v1/node/benchmark'))).toBe(false)
})

it('an agent answers with as many images of the backend as asked for, in one frame', async () => {
  const node = await connect(demoUrl)
  draw(node, 'r1', { n: 3 })
  await expect.poll(() => framesOf(node, 'r1').length).toBe(1)
  const { images, error } = lastOf(node, 'r1') as { images: string[]; error: unknown }
  expect(error).toBeNull()
  const facts = images.map((image) => readImageFacts(Buffer.from(image, 'base64')))
  expect(facts).toEqual(Array.from({ length: 3 }, () => ({ type: 'png', width: 256, height: 256 })))
  expect(new Set(images).size).toBe(3)
})

it('an agent leaves the size to its backend when the frame has none', async () => {
  const image = pngOf(64).toString('base64')
  scripted.setScript(() => ({ data: [{ b64_json: image }] }))
  const node = await connect(scripted.origin)
  draw(node, 'new', { size: null })
  await expect.poll(() => lastOf(node, 'new')?.images).toEqual([image])
  expect(scripted.requests.at(-1)?.json).not.toHaveProperty('size')
  draw(node, 'changed', { size: undefined, image })
  await expect.poll(() => lastOf(node, 'changed')?.images).toEqual([image])
  expect(scripted.requests.at(-1)?.body.toString()).not.toContain('name="size"')
})

it('an agent answers with an error to a frame for images that it cannot serve', async () => {
  const node = await connect(demoUrl)
  draw(node, 'r1', { n: 'two' })
  await expect
    .poll(() => lastOf(node, 'r1'))
    .toMatchObject({ images: [], error: expect.stringContaining('expected'), status_code: 400 })
})

it('an agent sends plain base64 for a data URL of its backend', async () => {
  const base64 = pngOf(64).toString('base64')
  scripted.setScript(() => ({ data: [{ b64_json: `data:image/png;base64,${base64}\n` }] }))
  const node = await connect(scripted.origin)
  draw(node, 'r1')
  await expect.poll(() => lastOf(node, 'r1')?.images).toEqual([base64])
})

it.each<[string, number, unknown, string, Readonly<Record<string, number>>]>([
  [
    'refuses',
    400,
    { error: { message: 'not this prompt' } },
    'not this prompt',
    { status_code: 400 },
  ],
  ['is busy', 429, { error: 'busy' }, 'busy', { status_code: 429, retry_after: 7 }],
  ['fails', 500, { error: 'no' }, 'no', {}],
  [
    'sends addresses',
    200,
    { data: [{ url: 'http://elsewhere/' }] },
    'the backend sent no images in base64',
    {},
  ],
  [
    'sends no JSON',
    200,
    'nonsense',
    'the backend sent something else than was asked for (no content type): nonsense',
    {},
  ],
  [
    'sends an error with status 200',
    200,
    { detail: 'CUDA' },
    'the backend sent something else than was asked for (no content type): CUDA',
    {},
  ],
])(
  'an agent tells what went wrong when the image backend %s',
  async (_, status, body, message, more) => {
    scripted.setScript((_request, response) => {
      const wait: Record<string, string> = status === 429 ? { 'retry-after': '7' } : {}
      response.writeHead(status, wait).end(typeof body === 'string' ? body : JSON.stringify(body))
    })
    const node = await connect(scripted.origin)
    draw(node, 'r1')
    await expect
      .poll(() => framesOf(node, 'r1'))
      .toEqual([{ request_id: 'r1', images: [], error: message, ...more }])
  },
)

it("an agent ends its backend's call when the caller of the images left", async () => {
  scripted.setScript(() => undefined)
  const node = await connect(scripted.origin)
  const [left, asked] = [scripted.left(), scripted.requests.length]
  draw(node, 'r1')
  await expect.poll(() => scripted.requests.length).toBe(asked + 1)
  node.send({ protocol: 'cancel', data: { ...CONTROL, request_id: 'r1' } })
  await expect.poll(() => framesOf(node, 'r1').length).toBe(1)
  await expect.poll(() => scripted.left()).toBe(left + 1)
})

it('an agent that draws refuses to chat, and an agent that chats refuses to draw', async () => {
  const node = await connect(demoUrl)
  chat(node, 'r1')
  await expect.poll(() => lastOf(node, 'r1')?.status).toBe(3)
  const { node: chatting } = await stage
    .connect()
    .then(async () => ({ node: await stage.nodeAt(1) }))
  draw(chatting, 'r2')
  await expect
    .poll(() => lastOf(chatting, 'r2'))
    .toMatchObject({ images: [], error: 'the node is of another type' })
})
