import { describe, expect, it } from 'vitest'
import { type RpcCall, RpcError, type RpcReply } from '../../../../src/chain/rpc.ts'
import { CHAIN_ATTEMPTS_MAX, ChainFault, openChainSource } from '../../../../src/cli/audit/chain.ts'

const hashOf = (at: number) => `0x${at.toString(16).padStart(64, '0')}`
const ADDRESS = `0x${'ab'.repeat(20)}`
const HASHES = Array.from({ length: 10 }, (_, at) => hashOf(at))

/** An endpoint that answers no batch of over so many calls, and counts what it is asked. */
function endpoint({ callsMax = 100, fault = null as RpcError | null } = {}) {
  const sizes: number[] = []
  let calls = 0
  return {
    sizes,
    get calls() {
      return calls
    },
    async call(): Promise<unknown> {
      calls++
      if (fault !== null) throw fault
      return '0x1'
    },
    async batch(asked: readonly RpcCall[]): Promise<readonly RpcReply[]> {
      sizes.push(asked.length)
      if (asked.length > callsMax) throw new RpcError('answer_too_large', 'expected a smaller answer')
      return asked.map(({ method, params: [hash] }) => ({
        kind: 'result',
        value:
          method === 'eth_getTransactionByHash'
            ? { hash, from: ADDRESS, nonce: '0x1', to: ADDRESS, input: '0x' }
            : null,
      }))
    },
  }
}

const given = { sleep: async () => undefined, signal: new AbortController().signal }

describe('openChainSource', () => {
  it('asks for fewer transactions when those that the gateway names are too large together', async () => {
    const rpc = endpoint({ callsMax: 5 })
    const found = await (await openChainSource(rpc, given)).fetchAnchors(HASHES)
    expect(found).toHaveLength(10)
    expect(found.every((anchor) => anchor?.receipt === null)).toBe(true)
    expect(rpc.sizes).toEqual([20, 10, 5, 5, 10, 5, 5])
  })

  it('takes a single answer that is too large for a fault of the chain', async () => {
    const chain = await openChainSource(endpoint({ callsMax: 0 }), given)
    await expect(chain.fetchAnchors(HASHES)).rejects.toThrow(ChainFault)
  })

  it('takes a refusal for a fault of the chain, at once', async () => {
    const rpc = endpoint({ fault: new RpcError('refused', 'eth_chainId: no such method') })
    await expect(openChainSource(rpc, given)).rejects.toThrow(ChainFault)
    expect(rpc.calls).toBe(1)
  })

  it('asks again what failed on the way, and gives up in the end', async () => {
    const rpc = endpoint({ fault: new RpcError('timeout', 'no complete answer') })
    await expect(openChainSource(rpc, given)).rejects.toThrow(ChainFault)
    expect(rpc.calls).toBe(CHAIN_ATTEMPTS_MAX)
  })
})
