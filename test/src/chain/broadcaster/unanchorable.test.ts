import { expect, it } from 'vitest'
import { RELAYER, useBroadcastStage } from '../../../support/broadcast-stage.ts'
import { signAnchors } from '../../../support/chain.ts'
import { until } from '../../../support/until.ts'

const stage = useBroadcastStage()

it('an anchor that reverted is reported once, and does not hold up the others', async () => {
  stage.anchors.add(await signAnchors(stage.chain, { count: 1, signature: new Uint8Array(65) }))
  await stage.add(4)
  const broadcaster = stage.broadcast()
  await stage.untilConfirmed(4)
  expect(stage.anchors.all()[0]?.state).toBe('reverted')
  await until('it is idle', () => broadcaster.status().phase === 'idle')
  expect(broadcaster.status().revertedCount).toBe(1)
  const errors = stage.logLines.filter((line) => line.level === 'error')
  expect(errors).toEqual([
    expect.objectContaining({
      message: 'anchor reverted on the chain',
      members: expect.objectContaining({ nonce: 0, tx_hash: stage.anchors.all()[0]?.txHash }),
    }),
  ])
  expect(await stage.chainNonce()).toBe(5)
})

it('an anchor whose nonce another transaction took is reported, and does not hold up the others', async () => {
  await stage.add(5)
  const [stranger] = await signAnchors(stage.chain, {
    count: 1,
    nonce: 1,
    signature: new Uint8Array(65).fill(1),
  })
  const [first] = stage.anchors.all()
  await stage.chain.rpc.call('eth_sendRawTransaction', [first?.raw])
  await stage.chain.rpc.call('eth_sendRawTransaction', [stranger?.raw])
  await until('both are mined', async () => (await stage.chainNonce()) === 2)
  const broadcaster = stage.broadcast({ takenAfterMs: 100 })
  await stage.untilConfirmed(4)
  await until('it is marked', () => stage.anchors.all()[1]?.state === 'taken')
  await until('it is idle', () => broadcaster.status().phase === 'idle')
  expect(broadcaster.status().takenCount).toBe(1)
})

it('an anchor is not sent where there is no contract', async () => {
  await stage.add(2)
  const broadcaster = stage.broadcast({ contract: `0x${'99'.repeat(20)}` })
  await until('the fault shows', () => broadcaster.status().fault?.code === 'no_contract')
  expect(await stage.chainNonce()).toBe(0)
})

it('an anchor is not sent to another chain', async () => {
  await stage.add(2)
  const broadcaster = stage.broadcast({ chainId: 1 })
  await until('the fault shows', () => broadcaster.status().fault?.code === 'wrong_chain')
  expect(await stage.chainNonce()).toBe(0)
  expect(stage.anchors.count('pending')).toBe(2)
})

it('an anchor is not sent over a gap in the nonces', async () => {
  await stage.add(2, 3)
  const broadcaster = stage.broadcast()
  await until('the fault shows', () => broadcaster.status().fault?.code === 'nonce_gap')
  expect(broadcaster.status().fault?.message).toContain('expects nonce 0')
  const pool = await stage.chain.rpc.call('txpool_status', [])
  expect(pool).toEqual({ pending: '0x0', queued: '0x0' })
})

it('an anchor that the endpoint refuses shows why, and is sent again until it is taken', async () => {
  await stage.chain.rpc.call('anvil_setBalance', [RELAYER, '0x1'])
  await stage.add(2)
  const broadcaster = stage.broadcast()
  await until('the fault shows', () => broadcaster.status().fault?.code === 'rejected')
  expect(broadcaster.status().fault?.message).toMatch(/insufficient funds/i)
  await stage.chain.rpc.call('anvil_setBalance', [RELAYER, '0xffffffffffffffffffff'])
  await stage.untilConfirmed(2)
  await until('the fault is over', () => broadcaster.status().fault === null)
})
