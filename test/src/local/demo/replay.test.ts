import { once } from 'node:events'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { readDemoConfig } from '#src/local/demo/config.ts'
import { createDemoServer } from '#src/local/demo/server.ts'

const parent = await mkdtemp(join(tmpdir(), 'replay-'))
const folder = join(parent, 'answers.d')
const WHOLE = '{"id":"a", "n": 1.0}'
const EVENTS = ['{"type":"one","x":1.0}', '{"type":"two"}', 'no JSON']

const server = createDemoServer({ delayMs: 0, now: () => 0, replayFolder: folder })

beforeAll(async () => {
  await mkdir(folder)
  await writeFile(join(folder, 'a.json'), WHOLE)
  await writeFile(join(folder, 'a.chunks.txt'), `${EVENTS.join('\n')}\n`)
  await writeFile(join(parent, 'secret.json'), 'secret')
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
})
afterAll(async () => {
  server.close()
  server.closeAllConnections()
  await rm(parent, { recursive: true })
})

const messages = [{ role: 'user', content: 'Hi' }]
const REQUESTS = {
  'chat/completions': { messages },
  responses: { input: 'Hi' },
  messages: { messages, max_tokens: 9 },
}

async function ask(path: keyof typeof REQUESTS, model: string, stream = false) {
  const { port } = server.address() as AddressInfo
  const response = await fetch(`http://127.0.0.1:${port}/v1/${path}`, {
    method: 'POST',
    body: JSON.stringify({ ...REQUESTS[path], model, stream }),
  })
  return { status: response.status, text: await response.text() }
}

const [first, second, third] = EVENTS
const NAMED = `event: one\ndata: ${first}\n\nevent: two\ndata: ${second}\n\ndata: ${third}\n\n`

it.each([
  [
    'chat/completions',
    `data: ${first}\n\ndata: ${second}\n\ndata: ${third}\n\ndata: [DONE]\n\n`,
  ] as const,
  ['responses', NAMED] as const,
  ['messages', NAMED] as const,
])('the demonstration replays a recorded answer of %s, byte for byte', async (path, events) => {
  expect(await ask(path, 'demo/replay/a.json')).toEqual({ status: 200, text: WHOLE })
  expect(await ask(path, 'replay/a.chunks.txt', true)).toEqual({ status: 200, text: events })
})

it.each([
  '../secret.json',
  '..%2Fsecret.json',
  '..\\secret.json',
  'a.json\n',
  '..',
  '',
  'other.json',
])('the demonstration replays no answer outside of its folder: %j', async (file) => {
  const { status, text } = await ask('chat/completions', `demo/replay/${file}`)
  expect(status).toBe(404)
  expect(text).toContain('has no such answer')
})

it('the demonstration says that a recorded answer is whole or a stream', async () => {
  expect((await ask('responses', 'demo/replay/a.json', true)).status).toBe(400)
  expect((await ask('responses', 'demo/replay/a.chunks.txt')).status).toBe(400)
})

it('recorded answers are not replayed in production', () => {
  const environment = { DEMO_REPLAY_FOLDER: folder }
  expect(readDemoConfig(environment).replayFolder).toBe(folder)
  expect(() => readDemoConfig({ ...environment, NODE_ENV: 'production' })).toThrow(
    'DEMO_REPLAY_FOLDER: no recorded answers in production',
  )
})
