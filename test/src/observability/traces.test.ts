import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type ReadableSpan, TracerProvider } from '@opentelemetry/sdk-trace'
import { afterEach, expect, it } from 'vitest'
import type { CallReport } from '#src/observability/call-scope.ts'
import { createLogger } from '#src/observability/logger.ts'
import { openTraces, traceCalls } from '#src/observability/traces.ts'

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

const STATUS_UNSET = 0
const STATUS_ERROR = 2

/** The status and the error type of the spans of a call, and of its inference. */
function errorsOf(report: Pick<CallReport, 'status' | 'error'>): readonly unknown[] {
  const spans: ReadableSpan[] = []
  const spanProcessors = [
    {
      onStart: () => undefined,
      onEnd: (span: ReadableSpan) => void spans.push(span),
      forceFlush: async () => undefined,
      shutdown: async () => undefined,
    },
  ]
  const tracer = new TracerProvider({ spanProcessors }).getTracer('tests')
  const phase = { phase: 'enclave', startedAtMs: 1, durationMs: 1, isFailed: false } as const
  traceCalls(tracer)
    .begin({ startedAtMs: 0, traceparent: null })
    .end({
      method: 'POST',
      route: '/v1/chat',
      isWhole: true,
      requestId: 'r',
      startedAtMs: 0,
      durationMs: 5,
      headMs: null,
      firstEventMs: null,
      phases: [phase],
      inference: { operation: 'chat', model: 'm' },
      ...report,
    })
  return ['POST /v1/chat', 'chat m'].map((name) => {
    const span = spans.find((one) => one.name === name)
    return [span?.status.code, span?.attributes['error.type']]
  })
}

it.each([
  ['that went well', 200, null, STATUS_UNSET],
  ['that failed here', 504, { code: 'provider_timeout', status: 504 }, STATUS_ERROR],
  ['whose stream ended with an error event', 200, { code: 'x', status: 502 }, STATUS_ERROR],
  ['that the provider refused', 409, { code: 'provider_refused', status: 409 }, STATUS_UNSET],
])('the spans of a call %s have the status of that', (_, status, error, code) => {
  const type = code === STATUS_ERROR ? error?.code : undefined
  expect(errorsOf({ status, error })).toEqual([
    [code, type],
    [code, type],
  ])
})
