import { Wallet } from 'ethers'
import { afterAll, expect, it } from 'vitest'
import { ANCHOR_GAS_LIMIT } from '#src/chain/sign-anchor.ts'
import { sendAnchor } from '../support/affidavit-contract.ts'
import { signHead, startTestChain } from '../support/chain.ts'

const chain = await startTestChain()
afterAll(() => chain.dispose())

/**
 * Gas of four anchors of one notary. Random-looking roots: zero bytes of call data would be
 * cheaper.
 */
async function measure(): Promise<Readonly<Record<string, number>>> {
  const notary = new Wallet(`0x${'61'.repeat(32)}`)
  const anchor = async (size: number, fill: number) => {
    const head = { size, root: new Uint8Array(32).fill(fill) }
    return (await sendAnchor(chain, { ...head, signature: await signHead(chain, notary, head) }))
      .gasUsed
  }
  const size = 0x01_0203_0405
  return {
    first: await anchor(size, 1),
    next: await anchor(size + 1, 2),
    outdated: await anchor(size, 1),
    equivocation: await anchor(size + 1, 3),
  }
}

it('the gas of an anchor stays within the figures of the README, and far within its limit', async () => {
  const gas = await measure()
  console.info(`gas of an anchor: ${JSON.stringify(gas)}`)
  expect(gas.first).toBeLessThan(75_500)
  expect(gas.next).toBeLessThan(41_000)
  expect(gas.outdated).toBeLessThan(33_000)
  expect(gas.equivocation).toBeLessThan(37_500)
  for (const used of Object.values(gas)) expect(used * 1.5).toBeLessThan(Number(ANCHOR_GAS_LIMIT))
})
