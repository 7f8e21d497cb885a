import { expect, it } from 'vitest'
import { useBroadcastStage } from '../../../support/broadcast-stage.ts'
import { until } from '../../../support/until.ts'

const stage = useBroadcastStage()

it('a broadcaster anchors what is stored, asks little while there is nothing to do, and wakes at a notify', async () => {
  await stage.add(25)
  const broadcaster = stage.broadcast({ heartbeatMs: 60_000 })
  await stage.untilConfirmed(25)
  await until('the broadcaster is idle', () => broadcaster.status().phase === 'idle')
  const before = stage.proxy.requests()
  for (let block = 0; block < 20; block++) await stage.chain.rpc.call('evm_mine', [])
  expect(stage.proxy.requests()).toBe(before)
  await stage.add(5)
  broadcaster.notify()
  await stage.untilConfirmed(30)
  await stage.expectAllAnchored()
  await until('the broadcaster is idle again', () => broadcaster.status().phase === 'idle')
  expect(broadcaster.status()).toMatchObject({ fault: null, pendingCount: 0, revertedCount: 0 })
  expect(stage.anchors.all().every((row) => row.gasUsed !== null && row.gasUsed > 21_000)).toBe(
    true,
  )
})

it('a broadcaster waits for the configured number of confirmations', async () => {
  await stage.add(3)
  stage.broadcast({ confirmations: 3 })
  // They may share a block, or the first be confirmed by those of the others; none has two blocks
  // on top of the last one's.
  await until('the last is mined', () => stage.anchors.all().at(-1)?.state === 'mined')
  const looked = stage.proxy.requests()
  await until('it has looked again', () => stage.proxy.requests() > looked + 4)
  expect(stage.anchors.all().at(-1)?.state).toBe('mined')
  await stage.chain.rpc.call('anvil_mine', ['0x2'])
  await stage.untilConfirmed(3)
})

it('a broadcaster does no harm when another one works on the same store', async () => {
  await stage.add(20)
  stage.broadcast()
  stage.broadcast()
  await stage.untilConfirmed(20)
  await stage.expectAllAnchored()
  expect(await stage.chainNonce()).toBe(20)
})

it('a broadcaster leaves anchors to the gateway whose turn it is, until nothing moves for long', async () => {
  await stage.add(10)
  let skippedMs = 0
  const now = () => performance.now() + skippedMs
  const waiting = { isOurs: () => false, standbyIntervalMs: 20, now }
  const broadcaster = stage.broadcast(waiting)
  await until('it has looked', () => broadcaster.status().pendingCount === 10)
  expect(await stage.chainNonce()).toBe(0)
  skippedMs = 31_000
  await stage.untilConfirmed(10)
  await stage.expectAllAnchored()
})

it('a broadcaster brings many anchors onto the chain in few exchanges', async () => {
  await stage.add(150)
  stage.broadcast({ pollIntervalMs: 500, heartbeatMs: 500, rebroadcastMs: 2_000 })
  await stage.untilConfirmed(150, 40_000)
  // 150 sends and 150 receipts at 100 a batch are 4; each round adds a few.
  expect(stage.proxy.requests()).toBeLessThan(50)
  await stage.expectAllAnchored()
}, 60_000)
