import { afterAll, expect, it } from 'vitest'
import { createRpc, type Rpc } from '#client/rpc.ts'
import { countTransactions, createRecentBlocks, type RecentBlock } from '#src/chain/chain-reads.ts'
import { startTestChain } from '../../support/chain.ts'
import { startChainProxy } from '../../support/chain-proxy.ts'

const chain = await startTestChain()
const proxy = await startChainProxy(chain.rpcUrl)
const throughProxy = createRpc({ url: proxy.url })
afterAll(async () => {
  await throughProxy.close()
  await proxy.stop()
  await chain.dispose()
})

function fetchRecentBlock(
  rpc: Rpc,
  confirmations: number,
  signal?: AbortSignal,
): Promise<RecentBlock> {
  return createRecentBlocks({ rpc, contract: chain.contract, confirmations })(signal)
}

async function blockAt(number: number): Promise<RecentBlock> {
  const block = await chain.rpc.call('eth_getBlockByNumber', [`0x${number.toString(16)}`, false])
  return { chainId: chain.chainId, number, hash: (block as { readonly hash: string }).hash }
}

it('createRecentBlocks gives the block of the deployment, never an older one, while the contract is young', async () => {
  expect(await fetchRecentBlock(chain.rpc, 1000)).toEqual(await blockAt(1))
  await chain.rpc.call('anvil_mine', ['0x7'])
  for (const confirmations of [7, 8, 100])
    expect(await fetchRecentBlock(chain.rpc, confirmations)).toEqual(await blockAt(1))
})

it('createRecentBlocks gives no block while there is no contract', async () => {
  const contract = `0x${'ab'.repeat(20)}`
  const fetchBlock = createRecentBlocks({ rpc: chain.rpc, contract, confirmations: 1 })
  await expect(fetchBlock()).rejects.toMatchObject({ code: 'refused' })
})

it('createRecentBlocks gives a block with all its confirmations once the contract is older than the states', async () => {
  const fetchBlock = createRecentBlocks({
    rpc: chain.rpc,
    contract: chain.contract,
    confirmations: 90,
  })
  await chain.rpc.call('anvil_mine', ['0x50'])
  const newest = Number(await chain.rpc.call('eth_blockNumber', []))
  expect((await fetchBlock()).number).toBe(newest - 60)
  await chain.rpc.call('anvil_mine', ['0x40'])
  expect(await fetchBlock()).toEqual(await blockAt(newest + 0x40 - 90))
})

it.each<[string, RegExp, string]>([
  ['no such block', /"result":\{.*\}/, '"result":null'],
  ['a block without a hash', /"hash":"0x[0-9a-f]{64}"/, '"hash":null'],
])('createRecentBlocks refuses %s from the endpoint', async (_, part, instead) => {
  proxy.behave((methods) =>
    methods.includes('eth_getBlockByNumber')
      ? { kind: 'alter', alter: (answer) => answer.replace(part, instead) }
      : { kind: 'pass' },
  )
  await expect(fetchRecentBlock(throughProxy, 1)).rejects.toMatchObject({ code: 'bad_answer' })
})

it('countTransactions counts what waits for a block too, of the expected chain alone', async () => {
  const from = '0x70997970c51812dc3a010c7d01b50e0d17dc79c8'
  const of = { address: from, chainId: chain.chainId }
  expect(await countTransactions(chain.rpc, of)).toBe(0)
  await chain.rpc.call('evm_setAutomine', [false])
  try {
    await chain.rpc.call('eth_sendTransaction', [{ from, to: from, value: '0x1' }])
    expect(await countTransactions(chain.rpc, of)).toBe(1)
  } finally {
    await chain.rpc.call('evm_setAutomine', [true])
    await chain.rpc.call('anvil_mine', [])
  }
  const other = countTransactions(chain.rpc, { ...of, chainId: 1 })
  await expect(other).rejects.toThrow('expected chain 1, the endpoint serves 31337')
})
