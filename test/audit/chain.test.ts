import { describe, expect, it } from 'vitest'
import { CHAIN_ATTEMPTS_MAX, ChainFault, openChainSource, readEventPages } from '#audit/chain.ts'
import { type RpcCall, RpcError, type RpcReply } from '#client/rpc.ts'
import { CONTRACT } from '../support/affidavit-contract.ts'

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
      if (asked.length > callsMax)
        throw new RpcError('answer_too_large', 'expected a smaller answer')
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

const asking = { sleep: async () => undefined, signal: new AbortController().signal }

describe('openChainSource', () => {
  it('the source of a chain asks for fewer transactions when those of the gateway are too large together', async () => {
    const rpc = endpoint({ callsMax: 5 })
    const found = await (await openChainSource(rpc, asking)).fetchAnchors(HASHES)
    expect(found).toHaveLength(10)
    expect(found.every((anchor) => anchor?.receipt === null)).toBe(true)
    expect(rpc.sizes).toEqual([20, 10, 5, 5, 10, 5, 5])
  })

  it('the source of a chain asks again what failed on the way, and gives up in the end', async () => {
    const rpc = endpoint({ fault: new RpcError('timeout', 'no complete answer') })
    await expect(openChainSource(rpc, asking)).rejects.toThrow(ChainFault)
    expect(rpc.calls).toBe(CHAIN_ATTEMPTS_MAX)
  })
})

const contract = `0x${'c0'.repeat(20)}`
const notary = `0x${'0d'.repeat(20)}`
const query = { contract, notary, fromBlock: 0, toBlock: 99 }

function entry(block: number, changed: object = {}) {
  const { topics, data } = CONTRACT.encodeEventLog('Anchored', [
    notary,
    block,
    `0x${'07'.repeat(32)}`,
  ])
  const place = { blockNumber: `0x${block.toString(16)}`, transactionHash: `0x${'aa'.repeat(32)}` }
  return { address: contract, topics, data, ...place, ...changed }
}

type Filter = { readonly fromBlock: string; readonly toBlock: string }
const rangeOf = (filter: object) =>
  [Number((filter as Filter).fromBlock), Number((filter as Filter).toBlock)] as const

async function read(getLogs: (from: number, to: number) => unknown) {
  const ranges: (readonly [number, number])[] = []
  const sizes: number[] = []
  const pages = readEventPages(async (filter) => {
    const [from, to] = rangeOf(filter)
    ranges.push([from, to])
    return getLogs(from, to)
  }, query)
  for await (const page of pages) sizes.push(...page.map(({ size }) => size))
  return { ranges, sizes }
}

const blocks = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, at) => entry(from + at))

describe('readEventPages', () => {
  it('readEventPages asks for fewer blocks when it is refused, and leaves none out and none twice', async () => {
    const { sizes } = await read((from, to) => {
      if (to - from >= 12) throw new RpcError('refused', 'query returned more than 12 results')
      return blocks(from, to)
    })
    expect(sizes).toEqual(Array.from({ length: 100 }, (_, at) => at))
  })

  it('readEventPages gives up on a single block that is refused', async () => {
    await expect(
      read(() => {
        throw new RpcError('answer_too_large', 'too large')
      }),
    ).rejects.toThrow(ChainFault)
  })

  it('readEventPages leaves out what is not of the contract, not of the notary, or not one of its events', async () => {
    const others = [
      entry(1, { address: `0x${'ee'.repeat(20)}` }),
      { ...entry(2), topics: entry(2).topics.with(1, `0x${'0'.repeat(24)}${'ee'.repeat(20)}`) },
      { ...entry(3), topics: entry(3).topics.with(0, `0x${'11'.repeat(32)}`) },
      { ...entry(4), data: '0x' },
      entry(5),
    ]
    expect((await read(() => others)).sizes).toEqual([5])
  })

  it.each([
    ['no list', {}],
    ['an entry of another form', [{ topics: 'x' }]],
  ])('readEventPages refuses an answer with %s', async (_, answer) => {
    await expect(read(() => answer)).rejects.toThrow(ChainFault)
  })
})
