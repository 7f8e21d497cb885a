import { expect, it } from 'vitest'
import { useBroadcastStage } from '../../../support/broadcast-stage.ts'
import { until } from '../../../support/until.ts'

const stage = useBroadcastStage()

it('a reorganisation that moves anchors to other blocks is followed, though no nonce changed', async () => {
  await stage.add(1)
  stage.broadcast()
  await stage.untilConfirmed(1)
  await stage.add(1)
  await stage.untilConfirmed(2)
  const [, second] = stage.anchors.all()
  // One block more, so that the last of the new ones is another than the anchor's was.
  await stage.chain.rpc.call('evm_mine', [])
  await stage.reorganise({ nonce: 1 }, [second?.raw ?? ''])
  expect(await stage.chainNonce()).toBe(2)
  await until('the store knows', async () => {
    return (await stage.staleCount()) === 0 && stage.anchors.count('confirmed') === 2
  })
  expect(stage.anchors.all()[1]?.blockHash).not.toBe(second?.blockHash)
  await stage.expectAllAnchored()
})

it('a reorganisation back to a snapshot far behind is repaired as well', async () => {
  const snapshot = await stage.chain.rpc.call('evm_snapshot', [])
  await stage.add(70)
  stage.broadcast({ windowMax: 5 })
  await stage.untilConfirmed(70)
  await stage.chain.rpc.call('evm_revert', [snapshot])
  await until('they are back', async () => (await stage.chainNonce()) === 70)
  await stage.untilConfirmed(70)
  await until('the store knows', async () => (await stage.staleCount()) === 0)
  await stage.expectAllAnchored()
}, 60_000)

it('an anchor whose receipt came from a block that is not in the chain is confirmed in its real block', async () => {
  const orphan = `0x${'ab'.repeat(32)}`
  await stage.add(2)
  let isAltered = false
  stage.proxy.behave((methods) => {
    if (methods.join() !== 'eth_getTransactionReceipt,eth_getTransactionReceipt' || isAltered)
      return { kind: 'pass' }
    return {
      kind: 'alter',
      alter: (answer) => {
        const replies = JSON.parse(answer)
        if (replies.some(({ result }: { result: unknown }) => result === null)) return answer
        isAltered = true
        replies[0].result.blockHash = orphan
        return JSON.stringify(replies)
      },
    }
  })
  stage.broadcast({ confirmations: 3 })
  await until('both are recorded', () => stage.anchors.count('mined') === 2)
  expect(stage.anchors.all()[0]?.blockHash).toBe(orphan)
  for (const _ of [1, 2, 3]) await stage.chain.rpc.call('evm_mine', [])
  await stage.untilConfirmed(2)
  await until('the store knows', async () => (await stage.staleCount()) === 0, 5_000)
  await stage.expectAllAnchored()
})

it('a reorganisation while the broadcaster was not running is found when it starts', async () => {
  await stage.add(10)
  const first = stage.broadcast()
  await stage.untilConfirmed(10)
  await first.stop()
  await stage.reorganise({ nonce: 9 })
  const lost = 10 - (await stage.chainNonce())
  expect(lost).toBeGreaterThan(0)
  stage.broadcast()
  await until('they are back', async () => (await stage.chainNonce()) === 10)
  await until('the store knows', async () => (await stage.staleCount()) === 0)
  await stage.untilConfirmed(10)
  await stage.expectAllAnchored()
})
