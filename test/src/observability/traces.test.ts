import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { createLogger } from '#src/observability/logger.ts'
import { openTraces } from '#src/observability/traces.ts'

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

async function startCollector(answer: RequestListener): Promise<number> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  closing.push(async () => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

/**
 * What is logged when a span is sent to `origin`, behind credentials in the URL and in a header.
 * `isSlow`: later than a process that ends would wait for.
 */
async function linesFor(origin: string, { isSlow = false } = {}): Promise<readonly string[]> {
  const lines: string[] = []
  const log = createLogger({
    level: 'info',
    destination: { write: (line: string) => void lines.push(line) },
  })
  const url = origin.replace('//', '//someone:url-secret@').concat('/path-secret/v1/traces')
  const headers = { 'x-collector-key': 'header-secret' }
  const config = { url, headers, serviceName: 'tests', ratio: 1 }
  const traces = openTraces(config, { version: '1', now: () => performance.now(), log })
  traces.tracer.startSpan('call').end()
  if (isSlow) await expect.poll(() => lines, { timeout: 12_000 }).not.toEqual([])
  await traces.close()
  return lines
}

/** A port that nothing listens on: of a server that has just gone. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

it('the log of traces tells where traces could not be sent to, and why, without any credential', async () => {
  const origin = `http://127.0.0.1:${await freePort()}`
  const lines = await linesFor(origin)
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    {
      level: 'warn',
      msg: 'traces could not be sent',
      spans: 1,
      endpoint: origin,
      error: 'ECONNREFUSED',
    },
  ])
  expect(lines.join()).not.toMatch(/secret|someone/)
}, 20_000)

it('the log of traces tells the status of a collector that refuses, and nothing of its words', async () => {
  const port = await startCollector((request, response) => {
    request.resume()
    response.writeHead(401, 'Spoken').end('spoken')
  })
  const lines = await linesFor(`http://127.0.0.1:${port}`)
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { endpoint: `http://127.0.0.1:${port}`, error: 401 },
  ])
  expect(lines.join()).not.toMatch(/secret|someone|spoken/i)
}, 20_000)

it('the log of traces tells that a collector does not answer', async () => {
  const port = await startCollector((request) => void request.resume())
  const lines = await linesFor(`http://127.0.0.1:${port}`, { isSlow: true })
  expect(lines.map((line) => JSON.parse(line).error)).toEqual(['timeout'])
}, 20_000)

it('the log of traces says nothing while traces are taken', async () => {
  const port = await startCollector((request, response) => {
    request.resume()
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
  })
  expect(await linesFor(`http://127.0.0.1:${port}`)).toEqual([])
})
