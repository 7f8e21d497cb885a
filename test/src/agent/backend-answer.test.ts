import { once } from 'node:events'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Pool } from 'undici'
import { afterEach, expect, it } from 'vitest'
import {
  ANSWER_WAITING_BYTES_MAX,
  type BackendAnswer,
  openBackendAnswer,
} from '#src/agent/backend-answer.ts'

const started: { readonly server: Server; readonly pool: Pool }[] = []
afterEach(async () => {
  for (const { server, pool } of started.splice(0)) {
    await pool.destroy()
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
})

async function start(answer: (response: ServerResponse) => void, connections = 1) {
  const seen = { connections: 0, requests: 0, cut: 0 }
  const server = createServer((_, response) => {
    seen.requests++
    response.on('close', () => {
      if (!response.writableFinished) seen.cut++
    })
    answer(response)
  })
  server.on('connection', () => seen.connections++)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections })
  started.push({ server, pool })
  const open = (signal: AbortSignal = new AbortController().signal) =>
    openBackendAnswer(pool, { method: 'POST', path: '/', body: '{}' }, signal)
  return { open, seen }
}

async function readAll(answer: BackendAnswer): Promise<number> {
  let bytes = 0
  for (let packet = await answer.next(); packet !== null; packet = await answer.next())
    bytes += packet.length
  return bytes
}

it('openAnswer gives status and packets, and uses the connection again', async () => {
  const { open, seen } = await start((response) => response.writeHead(418).end('hello'))
  for (let count = 0; count < 3; count++) {
    const answer = await open()
    expect(answer.status).toBe(418)
    expect(await readAll(answer)).toBe(5)
    answer.leave(true)
  }
  expect(seen).toEqual({ connections: 1, requests: 3, cut: 0 })
})

it('openAnswer passes over interim responses', async () => {
  const { open } = await start((response) => {
    response.writeProcessing()
    response.end('x')
  })
  expect((await open()).status).toBe(200)
})

it('openAnswer lets the backend wait while its answer is not read', {
  timeout: 20_000,
}, async () => {
  let written = 0
  const piece = Buffer.alloc(64 * 1024)
  const { open } = await start((response) => {
    const more = () => {
      while (written < 512) {
        written++
        if (!response.write(piece)) return void response.once('drain', more)
      }
      response.end()
    }
    more()
  })
  const answer = await open()
  await new Promise((resolve) => setTimeout(resolve, 300))
  // What the sockets of both sides hold is the system's to choose: a few megabytes.
  expect(written * piece.length).toBeLessThan(ANSWER_WAITING_BYTES_MAX + 16 * 1024 * 1024)
  expect(await readAll(answer)).toBe(512 * piece.length)
})

it('openAnswer gives nothing more, and ends the call, when it is aborted', async () => {
  const { open, seen } = await start((response) => response.write('abc'))
  const abort = new AbortController()
  const answer = await open(abort.signal)
  await new Promise((resolve) => setTimeout(resolve, 50))
  abort.abort('cancelled')
  await expect(answer.next()).rejects.toBe('cancelled')
  await expect.poll(() => seen.cut).toBe(1)
})

it('openAnswer does not send what is aborted while it waits for a connection', async () => {
  const { open, seen } = await start((response) => response.write('abc'))
  const first = await open()
  const abort = new AbortController()
  const second = open(abort.signal)
  await new Promise((resolve) => setTimeout(resolve, 50))
  abort.abort('cancelled')
  await expect(second).rejects.toBe('cancelled')
  first.leave(false)
  await expect.poll(() => seen.cut).toBe(1)
  await new Promise((resolve) => setTimeout(resolve, 50))
  expect(seen.requests).toBe(1)
})

it.each([
  ['goes on', (response: ServerResponse) => void response.write('x'.repeat(100_000))],
  ['does not end', () => undefined],
])('openAnswer gives up a connection whose answer %s after what matters', async (_, then) => {
  const { open, seen } = await start((response) => {
    response.write('abc')
    setTimeout(() => then(response), 50)
  })
  const answer = await open()
  await answer.next()
  answer.leave(true)
  await expect.poll(() => seen.cut).toBe(1)
})
