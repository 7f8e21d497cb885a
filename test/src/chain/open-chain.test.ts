import { afterAll, expect, it } from 'vitest'
import { type Chain, connectChain } from '#src/chain/open-chain.ts'
import { StartFailure } from '#src/runtime/starting.ts'
import { recordLog, startTestChain } from '../../support/chain.ts'

const local = await startTestChain()
afterAll(() => local.dispose())

type Config = Parameters<typeof connectChain>[0]

async function connect(more: Partial<Config> = {}, isProduction = false): Promise<Chain> {
  const { rpcUrl, relayerKey, contract } = local
  const config = { kind: 'remote' as const, rpcUrl, relayerKey, contract, chainId: null, ...more }
  const chain = await connectChain(config, { isProduction, log: recordLog().log })
  await chain.stop()
  return chain
}

it('connectChain refuses another chain than the given chain id', async () => {
  await expect(connect({ chainId: 1 })).rejects.toThrow('expected CHAIN_ID 1, got 31337')
})

it('connectChain refuses an address without a contract', async () => {
  await expect(connect({ contract: `0x${'12'.repeat(20)}` })).rejects.toThrow(
    'expected a contract at CONTRACT_ADDRESS',
  )
})

it('connectChain refuses a development chain in production', async () => {
  await expect(connect({}, true)).rejects.toThrow(StartFailure)
  await expect(connect({}, true)).rejects.toThrow("a development chain's id")
})

it('connectChain starts without an endpoint that cannot be reached, when the chain id was given', async () => {
  const chain = await connect({ rpcUrl: 'http://127.0.0.1:9', chainId: 5 })
  expect(chain.chainId).toBe(5)
})

it('connectChain does not start without a known chain id at an endpoint out of reach, and never shows its URL', async () => {
  const failing = connect({ rpcUrl: 'http://127.0.0.1:9/hush' })
  await expect(failing).rejects.toThrow('give CHAIN_ID to start without it')
  await expect(failing).rejects.not.toThrow('hush')
})
