import { afterAll, beforeAll, expect, it } from 'vitest'
import { type MetricsServer, startMetricsServer } from '#src/observability/metrics.ts'

const METRICS = {
  contentType: 'text/plain; version=0.0.4; charset=utf-8',
  read: async () => 'one 1\n',
}

let server: MetricsServer
beforeAll(async () => {
  server = await startMetricsServer(METRICS, { host: '127.0.0.1', port: 0 })
})
afterAll(() => server.close())

it('the metrics server serves the text format', async () => {
  const reply = await fetch(server.url)
  expect(reply.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
  expect(await reply.text()).toContain('one 1\n')
})

it.each([
  ['GET', '/', 404],
  ['GET', '/metrics/x', 404],
  ['POST', '/metrics', 405],
])('the metrics server refuses %s %s', async (method, path, status) => {
  expect((await fetch(new URL(path, server.url), { method })).status).toBe(status)
})

it('the metrics server answers 500 without a word of why when the metrics cannot be read', async () => {
  const read = () => Promise.reject(new Error('secret'))
  const other = await startMetricsServer({ ...METRICS, read }, { host: '127.0.0.1', port: 0 })
  const reply = await fetch(other.url)
  expect([reply.status, await reply.text()]).toEqual([500, 'The metrics could not be read\n'])
  await other.close()
})
