import { expect, it } from 'vitest'
import { createMeter } from '#src/observability/metrics.ts'
import { CHAT_REQUEST, getPath, postChat, VERIFIED_PATH } from '../../support/calls.ts'
import { useGateway } from '../../support/gateway.ts'
import { readMetrics } from '../../support/read-metrics.ts'

const meter = createMeter()
const gateway = await useGateway({ observers: [meter.calls] })

const metrics = async () => readMetrics(await meter.registry.metrics())

/** Value of a metric with at least these labels, summed. */
async function sumOf(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
  return (await metrics())
    .filter((sample) => sample.name === `affidavit_${name}`)
    .filter((sample) =>
      Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
    )
    .reduce((sum, { value }) => sum + value, 0)
}

it('a call is counted by route pattern, method, status and end, in all its phases', async () => {
  expect((await postChat(gateway, CHAT_REQUEST)).status).toBe(200)
  const labels = { route: VERIFIED_PATH, method: 'POST', status: '200', end: 'whole' }
  await expect.poll(() => sumOf('calls_total', labels)).toBe(1)
  for (const phase of ['whole', 'head', 'authenticate', 'enclave', 'commit'])
    expect([
      phase,
      await sumOf('call_duration_seconds_count', { route: VERIFIED_PATH, phase }),
    ]).toEqual([phase, 1])
  expect(await sumOf('calls_in_flight')).toBe(0)
})

it('a call on a node has the time until its first token', async () => {
  const route = '/v1/chat/completions'
  const headers = { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' }
  await fetch(gateway.url + route, {
    method: 'POST',
    headers,
    body: JSON.stringify(CHAT_REQUEST),
  })
  await expect.poll(() => sumOf('call_duration_seconds_count', { route, phase: 'node' })).toBe(1)
})

it('a call whose stream ends with an error event is not counted with those that went well', async () => {
  const whole = { route: VERIFIED_PATH, status: '200', end: 'whole' }
  const before = await sumOf('calls_total', whole)
  gateway.enclave.setScript(({ response }) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end('data: {"choices":[]}\n\n')
  })
  const text = await (await postChat(gateway, { ...CHAT_REQUEST, stream: true })).text()
  expect(text).toContain('event: error\n')
  await expect.poll(() => sumOf('calls_total', { ...whole, end: 'error' })).toBe(1)
  expect(await sumOf('calls_total', whole)).toBe(before)
})

it('a call is in flight until its answer is at its end, and cut when its caller leaves', async () => {
  const arrived = Promise.withResolvers<void>()
  gateway.enclave.setScript(async ({ left }) => {
    arrived.resolve()
    await left
  })
  const abort = new AbortController()
  const reply = postChat(gateway, CHAT_REQUEST, { signal: abort.signal }).catch(() => null)
  await arrived.promise
  expect(await sumOf('calls_in_flight')).toBe(1)
  abort.abort()
  await reply
  await expect.poll(() => sumOf('calls_total', { end: 'cut', status: '499' })).toBe(1)
  expect(await sumOf('calls_total', { route: VERIFIED_PATH, status: '404' })).toBe(0)
  expect(await sumOf('calls_in_flight')).toBe(0)
})

it('labels of metrics hold nothing that a caller sent: no path, no id, no method of its own', async () => {
  const seriesBefore = (await metrics()).length
  const secrets = ['marmalade', 'ab'.repeat(32)]
  for (const path of [
    `/${secrets[0]}`,
    `${VERIFIED_PATH}/${secrets[1]}`,
    `/v1/models?x=${secrets[0]}`,
  ])
    await getPath(gateway, path)
  await fetch(`${gateway.url}/`, { method: 'MARMALADE' }).catch(() => null)
  await fetch(`${gateway.url}/`, { method: 'PROPFIND', headers: { 'x-request-id': 'marmalade' } })
  await expect.poll(() => sumOf('calls_total', { method: 'other' })).toBe(1)
  await expect.poll(() => sumOf('calls_total', { route: 'none' })).toBeGreaterThan(0)
  expect(await meter.registry.metrics()).not.toMatch(new RegExp(secrets.join('|'), 'i'))
  const seriesAfter = (await metrics()).length
  for (let times = 0; times < 20; times++) await getPath(gateway, `/nothing-${times}`)
  expect((await metrics()).length - seriesAfter).toBeLessThan(25)
  expect(seriesAfter).toBeGreaterThan(seriesBefore)
})

it('metrics count commits with their records', async () => {
  meter.countCommit({ records: 3, durationMs: 20 })
  meter.countCommit({ records: 1, durationMs: 10 })
  expect([await sumOf('commit_records_count'), await sumOf('commit_records_sum')]).toEqual([2, 4])
  expect(await sumOf('commit_duration_seconds_sum')).toBeCloseTo(0.03)
})
