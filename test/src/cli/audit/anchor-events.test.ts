import { describe, expect, it } from 'vitest'
import { RpcError } from '../../../../src/chain/rpc.ts'
import { ChainFault, readEventPages } from '../../../../src/cli/audit/chain.ts'
import { CONTRACT } from '../../../support/affidavit-contract.ts'

const contract = `0x${'c0'.repeat(20)}`
const notary = `0x${'0d'.repeat(20)}`
const query = { contract, notary, fromBlock: 0, toBlock: 99 }

function entry(block: number, changed: object = {}) {
  const { topics, data } = CONTRACT.encodeEventLog('Anchored', [notary, block, `0x${'07'.repeat(32)}`])
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
  it('asks for all blocks at once, when the endpoint gives them', async () => {
    const { ranges, sizes } = await read(blocks)
    expect(ranges).toEqual([[0, 99]])
    expect(sizes).toHaveLength(100)
  })

  it('asks for fewer blocks when it is refused, and leaves none out and none twice', async () => {
    const { sizes } = await read((from, to) => {
      if (to - from >= 12) throw new RpcError('refused', 'query returned more than 12 results')
      return blocks(from, to)
    })
    expect(sizes).toEqual(Array.from({ length: 100 }, (_, at) => at))
  })

  it('gives up on a single block that is refused', async () => {
    await expect(
      read(() => {
        throw new RpcError('answer_too_large', 'too large')
      }),
    ).rejects.toThrow(ChainFault)
  })

  it('leaves out what is not of the contract, not of the notary, or no event of it', async () => {
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
  ])('refuses %s', async (_, answer) => {
    await expect(read(() => answer)).rejects.toThrow(ChainFault)
  })
})
