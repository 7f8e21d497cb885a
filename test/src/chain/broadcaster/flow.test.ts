import { describe, expect, it } from 'vitest'
import { useBroadcastStage } from '../../../support/broadcast-stage.ts'
import { until } from '../../../support/until.ts'

const stage = useBroadcastStage()

describe('a broadcaster', () => {
  it('a broadcaster anchors what is stored, and then what is added', async () => {
    await stage.add(25)
    const broadcaster = stage.broadcast()
    await stage.untilConfirmed(25)
    await stage.add(5)
    broadcaster.notify()
    await stage.untilConfirmed(30)
    await stage.expectAllAnchored()
    await until('the broadcaster is idle', () => broadcaster.status().phase === 'idle')
    expect(broadcaster.status()).toMatchObject({ fault: null, waitingCount: 0, revertedCount: 0 })
    expect(stage.anchors.all().every((row) => row.gasUsed !== null && row.gasUsed > 21_000)).toBe(
      true,
    )
  })

  it('a broadcaster finds new anchors by itself, without a notify', async () => {
    stage.broadcast()
    await new Promise((resolve) => setTimeout(resolve, 100))
    await stage.add(3)
    await stage.untilConfirmed(3)
  })

  it('a broadcaster waits for the configured number of confirmations', async () => {
    await stage.add(3)
    stage.broadcast({ confirmations: 3 })
    // They may share a block, or the first be confirmed by those of the others; none has two blocks
    // on top of the last one's.
    await until('the last is mined', () => stage.anchors.all().at(-1)?.state === 'mined')
    await new Promise((resolve) => setTimeout(resolve, 200))
    expect(stage.anchors.all().at(-1)?.state).toBe('mined')
    await stage.chain.rpc.call('anvil_mine', ['0x2'])
    await stage.untilConfirmed(3)
  })

  it('a broadcaster records what somebody else has sent for it', async () => {
    await stage.add(4)
    for (const row of stage.anchors.all())
      await stage.chain.rpc.call('eth_sendRawTransaction', [row.raw])
    await until('they are mined', async () => (await stage.chainNonce()) === 4)
    stage.broadcast()
    await stage.untilConfirmed(4)
    await stage.expectAllAnchored()
  })

  it('a broadcaster does no harm when another one works on the same store', async () => {
    await stage.add(40)
    stage.broadcast()
    stage.broadcast()
    await stage.untilConfirmed(40)
    await stage.expectAllAnchored()
    expect(await stage.chainNonce()).toBe(40)
  })

  it('a broadcaster leaves anchors to the gateway whose turn it is, until nothing moves for long', async () => {
    await stage.add(10)
    let skippedMs = 0
    const now = () => performance.now() + skippedMs
    const waiting = { isOurs: () => false, standbyIntervalMs: 20, now }
    const broadcaster = stage.broadcast(waiting)
    await until('it has looked', () => broadcaster.status().waitingCount === 10)
    expect(await stage.chainNonce()).toBe(0)
    skippedMs = 31_000
    await stage.untilConfirmed(10)
    await stage.expectAllAnchored()
  })

  it('a broadcaster takes over from another that was stopped half way', async () => {
    await stage.add(60)
    const first = stage.broadcast({ windowMax: 10 })
    await until('some are mined', () => stage.anchors.count('confirmed') > 5)
    await first.stop()
    const done = stage.anchors.count('confirmed')
    expect(done).toBeLessThan(60)
    stage.broadcast()
    await stage.untilConfirmed(60)
    await stage.expectAllAnchored()
  })

  it('a broadcaster brings a thousand anchors onto the chain in few exchanges', async () => {
    await stage.add(1_000)
    stage.broadcast({ pollIntervalMs: 500, heartbeatMs: 500, rebroadcastMs: 2_000 })
    await stage.untilConfirmed(1_000, 40_000)
    // 1,000 sends and 1,000 receipts at 100 a batch are 20; each round adds a few.
    expect(stage.proxy.requests()).toBeLessThan(120)
    await stage.expectAllAnchored()
  }, 60_000)

  it('a broadcaster asks little while there is nothing to do, and wakes at a notify', async () => {
    await stage.add(1)
    const broadcaster = stage.broadcast({ heartbeatMs: 60_000 })
    await until('it is idle', () => broadcaster.status().phase === 'idle')
    const before = stage.proxy.requests()
    await new Promise((resolve) => setTimeout(resolve, 500))
    expect(stage.proxy.requests()).toBe(before)
    await stage.add(1)
    broadcaster.notify()
    await stage.untilConfirmed(2, 2_000)
  })

  it('a broadcaster does not make a round for each of many notices', async () => {
    const broadcaster = stage.broadcast({ pollIntervalMs: 100, heartbeatMs: 60_000 })
    await until('it is idle', () => broadcaster.status().phase === 'idle')
    const before = stage.proxy.requests()
    const until_ = performance.now() + 500
    while (performance.now() < until_) {
      broadcaster.notify()
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    expect(stage.proxy.requests() - before).toBeLessThan(10)
  })
})
