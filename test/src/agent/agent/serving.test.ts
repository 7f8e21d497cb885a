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
import {
  answerWith,
  type BackendScript,
  textChunk,
  usageChunk,
  writeEvents,
} from '../../../support/scripted-backend.ts'

const stage = useAgentStage()

it('an agent answers a chat frame with its chunks, the usage, and the end', async () => {
  const { node } = await stage.connect()
  chat(node, 'r1', { stream: false })
  await expect.poll(() => statusOf(node, 'r1')).toBe(2)
  const frame = { request_id: 'r1', error: null, status: 1 }
  expect(framesOf(node, 'r1')).toEqual([
    ...[textChunk('a'), textChunk('b'), textChunk('', 'stop'), usageChunk(2)].map((chunk) => ({
      ...frame,
      chunk,
    })),
    { ...frame, chunk: null, status: 2 },
  ])
  expect(stage.backend.requests.at(-1)).toMatchObject({
    model: 'model-a',
    stream: true,
    stream_options: { include_usage: true },
  })
})

it.each([
  ['http://169.254.169.254/latest', {}, 3],
  ['https://example.org/a.png', { fetchesMedia: false }, 3],
  ['https://example.org/a.png', { fetchesMedia: true }, 2],
  ['file:///etc/passwd', { fetchesMedia: true }, 3],
])(
  'an agent meets the image address %s, with the settings %j, with run status %i',
  async (url, more, status) => {
    const { node } = await stage.connect(more)
    const before = stage.backend.requests.length
    const content = [{ type: 'image_url', image_url: { url } }]
    chat(node, 'r1', { messages: [{ role: 'user', content }] })
    await expect.poll(() => statusOf(node, 'r1')).toBe(status)
    expect(stage.backend.requests.length - before).toBe(status === 2 ? 1 : 0)
    if (status === 3)
      expect(lastOf(node, 'r1')?.error).toMatchObject({
        status_code: 400,
        message: expect.stringContaining('messages.0.content.0.image_url.url'),
      })
  },
)

it('an agent serves many requests and several models at once', async () => {
  stage.script = async (response, { model }) => {
    writeEvents(response, [textChunk(String(model))])
    await sleep(50)
    writeEvents(response, [textChunk('', 'stop'), usageChunk(1), '[DONE]'])
    response.end()
  }
  const { agent, node } = await stage.connect()
  for (let index = 0; index < 20; index++)
    chat(node, `r${index}`, {}, index % 2 ? 'model-a' : 'model-b')
  await expect.poll(() => agent.status().running).toBe(20)
  await expect.poll(() => node.frames.filter(({ status }) => status === 2).length).toBe(20)
  for (let index = 0; index < 20; index++)
    expect(framesOf(node, `r${index}`)[0]).toMatchObject({
      chunk: textChunk(index % 2 ? 'model-a' : 'model-b'),
    })
  expect(agent.status().running).toBe(0)
})

it.each([
  [
    'a refusal',
    422,
    (status: number): BackendScript =>
      (response) => {
        response.writeHead(status).end('{"error":{"message":"too long"}}')
      },
    'too long',
  ],
  [
    'a break',
    500,
    (): BackendScript => (response) => {
      writeEvents(response, [textChunk('a')])
      setTimeout(() => response.destroy(), 10)
    },
    'broke off',
  ],
])(
  'an agent tells %s of its backend with status code %d',
  async (_, status, makeScript, message) => {
    stage.script = makeScript(status)
    const { node } = await stage.connect()
    chat(node, 'r1')
    await expect.poll(() => statusOf(node, 'r1')).toBe(3)
    expect(lastOf(node, 'r1')).toMatchObject({
      chunk: null,
      error: { status_code: status, message: expect.stringContaining(message) },
    })
  },
)

it('an agent tells a chunk that no frame can carry as an error, and stays connected', async () => {
  stage.script = (response) => {
    writeEvents(response, [textChunk('x'.repeat(1024 * 1024 - 150)), '[DONE]'])
    response.end()
  }
  const { node } = await stage.connect()
  chat(node, 'r1')
  await expect.poll(() => statusOf(node, 'r1')).toBe(3)
  stage.script = answerWith('a')
  chat(node, 'r2')
  await expect.poll(() => statusOf(node, 'r2')).toBe(2)
})

it('an agent refuses an unserved model, a malformed chat frame, and more runs than it takes', async () => {
  stage.script = (response) => writeEvents(response, [textChunk('a')])
  const { agent, node } = await stage.connect()
  chat(node, 'r1', {}, 'model-z')
  node.send({ id: 'r2', model: 'model-a', chat_request: null })
  await expect.poll(() => statusOf(node, 'r2')).toBe(3)
  expect(lastOf(node, 'r1')).toMatchObject({ error: { status_code: 404 } })
  expect(lastOf(node, 'r2')).toMatchObject({ error: { status_code: 400 } })
  for (let index = 0; index < 65; index++) chat(node, `n${index}`)
  await expect.poll(() => statusOf(node, 'n64')).toBe(3)
  expect(lastOf(node, 'n64')).toMatchObject({ error: { status_code: 429 } })
  expect(agent.status().running).toBe(64)
})

it("an agent aborts its backend's call when it is told to, and ends the run as done", async () => {
  stage.script = (response) => writeEvents(response, [textChunk('a')])
  const { agent, node } = await stage.connect()
  chat(node, 'r1')
  chat(node, 'r2')
  await expect
    .poll(() => [framesOf(node, 'r1').length, framesOf(node, 'r2').length])
    .toEqual([1, 1])
  node.send({ protocol: 'cancel', data: { ...CONTROL, request_id: 'r1' } })
  node.send({ protocol: 'cancel', data: { ...CONTROL, request_id: 'unknown' } })
  await expect.poll(() => lastOf(node, 'r1')).toMatchObject({ chunk: null, error: null, status: 2 })
  await expect.poll(() => stage.backend.open()).toBe(1)
  expect(agent.status().running).toBe(1)
})

it("an agent aborts its backend's calls when the connection is cut", async () => {
  stage.script = (response) => writeEvents(response, [textChunk('a')])
  const { agent, node } = await stage.connect()
  chat(node, 'r1')
  await expect.poll(() => stage.backend.open()).toBe(1)
  node.cut()
  await expect.poll(() => stage.backend.open()).toBe(0)
  expect(stage.backend.left()).toBe(1)
  await stage.nodeAt(1)
  await expect
    .poll(() => agent.status())
    .toMatchObject({ phase: 'connected', running: 0, connections: 2 })
})

it('an agent waits for a gateway that reads slowly instead of keeping the whole answer', async () => {
  const state = { written: 0 }
  stage.script = (response) => {
    response.writeHead(200)
    const event = `data: ${JSON.stringify(textChunk('x'.repeat(100_000)))}\n\n`
    const more = () => {
      while (state.written < 250) {
        state.written += 1
        if (!response.write(event)) return
      }
      response.end('data: [DONE]\n\n')
    }
    response.on('drain', more)
    more()
  }
  const { node } = await stage.connect()
  node.pause()
  chat(node, 'r1')
  await expect.poll(() => state.written).toBeGreaterThan(20)
  let written = 0
  // However slowly it comes: at some time nothing more does, long before all is written.
  while (state.written !== written) {
    written = state.written
    await sleep(300)
  }
  expect(written).toBeLessThan(200)
  node.resume()
  await expect.poll(() => statusOf(node, 'r1')).toBe(2)
  expect(framesOf(node, 'r1')).toHaveLength(251)
})
