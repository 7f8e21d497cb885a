import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fetchRecentBlock } from '../../../src/chain/chain-reads.ts'
import { createRpc, type Rpc } from '../../../src/chain/rpc.ts'
import { startTestChain, type TestChain } from '../../support/chain.ts'
import { type ChainProxy, startChainProxy } from '../../support/chain-proxy.ts'

let chain: TestChain
let proxy: ChainProxy
let throughProxy: Rpc

beforeAll(async () => {
  chain = await startTestChain()
  proxy = await startChainProxy(chain.rpcUrl)
  throughProxy = createRpc({ url: proxy.url })
}, 60_000)
afterAll(async () => {
  await throughProxy.close()
  await proxy.stop()
  await chain.dispose()
})

describe('fetchRecentBlock', () => {
  it('gives the first block while the chain is shorter than the confirmations', async () => {
    const { hash } = (await chain.rpc.call('eth_getBlockByNumber', ['0x0', false])) as {
      readonly hash: string
    }
    expect(await fetchRecentBlock(chain.rpc, 1000)).toEqual({ chainId: chain.chainId, number: 0, hash })
  })

  it('gives the block with exactly so many on top of it', async () => {
    await chain.rpc.call('anvil_mine', ['0x20'])
    const newest = Number(await chain.rpc.call('eth_blockNumber', []))
    for (const confirmations of [0, 1, 12]) {
      const number = newest - confirmations
      const block = await chain.rpc.call('eth_getBlockByNumber', [`0x${number.toString(16)}`, false])
      const { hash } = block as { readonly hash: string }
      expect(await fetchRecentBlock(chain.rpc, confirmations)).toEqual({
        chainId: chain.chainId,
        number,
        hash,
      })
    }
  })

  it.each<[string, RegExp, string]>([
    ['no such block', /"result":\{.*\}/, '"result":null'],
    ['a block without a hash', /"hash":"0x[0-9a-f]{64}"/, '"hash":null'],
  ])('refuses %s', async (_, part, instead) => {
    proxy.behave((methods) =>
      methods.includes('eth_getBlockByNumber')
        ? { kind: 'alter', alter: (answer) => answer.replace(part, instead) }
        : { kind: 'pass' },
    )
    await expect(fetchRecentBlock(throughProxy, 1)).rejects.toMatchObject({ code: 'bad_answer' })
  })

  it('ends with the signal’s reason', async () => {
    const over = AbortSignal.abort(new Error('over'))
    await expect(fetchRecentBlock(chain.rpc, 1, over)).rejects.toThrow('over')
  })
})
