import { expect, it } from 'vitest'
import { CHAT_REQUEST, postChat } from '../../../support/calls.ts'
import {
  GATEWAY_HOOK_TIMEOUT_MS,
  startGateway,
  type TestGateway,
  useGateway,
} from '../../../support/gateway.ts'

async function readiness({ url }: TestGateway) {
  const reply = await fetch(`${url}/readyz`)
  return { status: reply.status, headers: reply.headers, body: JSON.parse(await reply.text()) }
}

const failingOf = async (gateway: TestGateway): Promise<unknown> =>
  (await readiness(gateway)).body.failing

/** Within what an answer may be old and a hanging part may take. */
const SOON = { interval: 200 }

const gateway = await useGateway()

it('a gateway whose parts all work is healthy and ready, and asks for no key', async () => {
  const health = await fetch(`${gateway.url}/healthz`)
  expect([health.status, await health.json()]).toEqual([200, { status: 'ok' }])
  await expect.poll(() => failingOf(gateway), SOON).toEqual([])
  expect((await readiness(gateway)).body).toEqual({
    status: 'ready',
    failing: [],
    chain: { status: 'ok', anchors_pending: 0, blocks_unreadable: 0 },
    development: true,
  })
})

it('a gateway whose parts all work logs probes that went well at debug level alone', async () => {
  const before = gateway.logLines.length
  await fetch(`${gateway.url}/healthz`)
  await expect.poll(() => gateway.logLines.length).toBeGreaterThan(before)
  expect(JSON.parse(gateway.logLines[before] ?? '')).toMatchObject({
    level: 'debug',
    path: '/healthz',
  })
})

it('a gateway whose parts all work answers HEAD too', async () => {
  expect((await fetch(`${gateway.url}/readyz`, { method: 'HEAD' })).status).toBe(200)
})

it.each<[string, readonly string[], (gateway: TestGateway) => Promise<void>]>([
  ['whose database is gone', ['database'], (gateway) => gateway.breakDatabase()],
  [
    'whose enclave is gone',
    ['enclave', 'attestation', 'commits'],
    (gateway) => gateway.enclave.stop(),
  ],
  ['whose committer has stopped', ['commits'], (gateway) => gateway.committer.stop()],
])(
  'a gateway %s is not ready, but healthy',
  async (_, parts, breakPart) => {
    const gateway = await startGateway()
    try {
      await expect.poll(() => failingOf(gateway), SOON).toEqual([])
      await breakPart(gateway)
      await expect.poll(() => failingOf(gateway), SOON).toEqual(expect.arrayContaining([...parts]))
      const { status, headers, body } = await readiness(gateway)
      expect(status).toBe(503)
      expect(headers.get('retry-after')).toBe('1')
      expect(body.response).toBe('NOK')
      expect(body.error).toMatchObject({ status_code: 503, code: 'not_ready' })
      expect(body.error.message).toContain(parts[0])
      expect((await fetch(`${gateway.url}/healthz`)).status).toBe(200)
    } finally {
      await gateway.stop()
    }
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)

it('a gateway that is told to stop is not ready at once, and serves until the delay is over or skipped', async () => {
  const gateway = await startGateway({ settings: { drainDelayMs: 60_000 } })
  try {
    await expect.poll(() => failingOf(gateway), SOON).toEqual([])
    const skip = new AbortController()
    const drained = gateway.drain(skip.signal)
    const { status, body, headers } = await readiness(gateway)
    expect([status, body.failing, headers.get('connection')]).toEqual([503, ['stopping'], 'close'])
    expect((await fetch(`${gateway.url}/healthz`)).status).toBe(200)
    const call = await postChat(gateway, CHAT_REQUEST)
    expect([call.status, call.headers.get('connection')]).toEqual([200, 'close'])
    skip.abort()
    await drained
  } finally {
    await gateway.stop()
  }
})
