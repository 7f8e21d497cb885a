import { expect, it } from 'vitest'
import { createRpc } from '#client/rpc.ts'
import { AT_ONCE_MS, FAR_OFF_MS } from '../../../support/at-once.ts'
import { useBroadcastStage } from '../../../support/broadcast-stage.ts'
import { until } from '../../../support/until.ts'

const stage = useBroadcastStage()

it('a broadcaster that is stopped ends at once while an exchange hangs, and leaves no connection', async () => {
  stage.proxy.behave(() => ({ kind: 'hang' }))
  await stage.add(1)
  const rpc = createRpc({ url: stage.proxy.url, timeoutMs: FAR_OFF_MS })
  const broadcaster = stage.broadcast({ rpc })
  await until('it asks', () => stage.proxy.requests() > 0)
  const startedAt = performance.now()
  await broadcaster.stop()
  expect(performance.now() - startedAt).toBeLessThan(AT_ONCE_MS)
  expect(broadcaster.status().phase).toBe('stopped')
  await rpc.close()
  await until('the connections are gone', async () => (await stage.proxy.connections()) === 0)
})

it('a broadcaster that is stopped ends at once while it backs off, and while it is idle', async () => {
  for (const action of [{ kind: 'answer', status: 500, body: '' }, { kind: 'pass' }] as const) {
    stage.proxy.behave(() => action)
    const broadcaster = stage.broadcast({
      heartbeatMs: 60_000,
      backoff: { minMs: 60_000, maxMs: 60_000 },
    })
    await until('it pauses', () => ['failing', 'idle'].includes(broadcaster.status().phase))
    const startedAt = performance.now()
    await broadcaster.stop()
    expect(performance.now() - startedAt).toBeLessThan(AT_ONCE_MS)
  }
})
