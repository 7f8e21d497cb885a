import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { CHAIN_ATTEMPTS_MAX, ChainFault, openChainSource, readEventPages } from '#audit/chain.ts'
import { type RpcCall, RpcError, type RpcReply } from '#client/rpc.ts'
import { signAnchorTransaction } from '#src/chain/sign-anchor.ts'
import { CONTRACT } from '../support/affidavit-contract.ts'
import {
  type Anchoring,
  anchorHeads,
  type BuiltHead,
  type BuiltLog,
  buildLog,
  createTestNotary,
  fundRelayer,
  type TestNotary,
} from '../support/audited-log.ts'
import { startTestChain, TEST_FEES, type TestChain } from '../support/chain.ts'
import type { Attack } from '../support/equivocating-server.ts'
import { openStage, type Stage } from './stage.ts'

const BATCHES = [3, 2, 4, 6, 5]

let stage: Stage
let chain: TestChain
let anchoring: Anchoring

beforeAll(async () => {
  stage = await openStage()
  chain = await startTestChain()
}, 60_000)
// Logs of a relayer that the gateway does not list are hidden.
beforeEach(async () => {
  anchoring = await fundRelayer(chain)
})
afterAll(async () => {
  await stage.close()
  await chain.dispose()
})

async function build(
  options: Partial<Parameters<typeof buildLog>[1]> = {},
  notary?: TestNotary,
): Promise<BuiltLog> {
  return buildLog(notary ?? (await createTestNotary(chain)), {
    batches: BATCHES,
    anchoring,
    attestedSizes: [3, 15],
    ...options,
  })
}

async function audit(
  log: BuiltLog,
  { attack = null, words = [] }: { attack?: Attack | null; words?: readonly string[] } = {},
) {
  stage.server.serve([log], attack)
  return stage.audit(...(await stage.trust(log)), '--rpc', chain.rpcUrl, ...words)
}

/** The log with another anchor for one of its heads. */
function withAnchor(
  log: BuiltLog,
  at: number,
  anchor: Partial<BuiltHead['anchor']>,
  createdAt?: number,
): BuiltLog {
  const heads = log.heads.map((head, index) =>
    index === at
      ? { ...head, anchor: { ...head.anchor, ...anchor }, createdAt: createdAt ?? head.createdAt }
      : head,
  )
  return { ...log, heads }
}

const NEWEST = BATCHES.length - 1
const PENDING = { state: 'pending', block_number: null, block_hash: null } as const

describe('affidavit audit, with a chain', () => {
  it('an audit with a chain finds nothing in an honest log: every anchor is there, and every head there is served', async () => {
    const { code, codes, outcomes } = await audit(await build())
    expect([code, codes]).toEqual([0, []])
    expect(outcomes).toMatchObject({
      'anchors on chain': 'passed',
      'heads on chain': 'passed',
      'time attestations': 'passed',
      'blocks of attestations': 'passed',
    })
  })

  it('an audit with a chain takes no offence at a stranger who anchors an old head again', async () => {
    const log = await build()
    await anchorAgain(log, 1)
    expect(await audit(log)).toMatchObject({ code: 0, codes: [] })
  })

  it('an audit with a chain waits for a young head without an anchor, and says so', async () => {
    const log = withAnchor(await build(), NEWEST, { ...PENDING, tx_hash: `0x${'33'.repeat(32)}` })
    const { code, codes, outcomes } = await audit(log)
    expect([code, codes, outcomes['anchors on chain']]).toEqual([0, [], 'not checked'])
  })

  it('an audit with a chain takes a head for anchored that was mined while the gateway still says pending', async () => {
    const { code, outcomes } = await audit(withAnchor(await build(), NEWEST, PENDING))
    expect([code, outcomes['anchors on chain']]).toEqual([0, 'passed'])
  })

  it('an audit with a chain catches a head that waits for its anchor for hours', async () => {
    const twoHoursAgo = Math.floor(Date.now() / 1000) - 7200
    const unsent = { ...PENDING, tx_hash: `0x${'33'.repeat(32)}` }
    const { code, codes } = await audit(withAnchor(await build(), 2, unsent, twoHoursAgo))
    expect([code, codes]).toEqual([1, ['anchor_overdue']])
  })

  it('an audit with a chain catches an unanchored head', async () => {
    const { code, codes } = await audit(
      withAnchor(await build(), 2, { tx_hash: `0x${'33'.repeat(32)}` }),
    )
    expect([code, codes]).toEqual([1, ['anchor_missing']])
  })

  it('an audit with a chain catches a head with the transaction of another one', async () => {
    const log = await build()
    const { code, codes } = await audit(
      withAnchor(log, 2, { tx_hash: log.heads[1]?.anchor.tx_hash ?? '' }),
    )
    expect([code, codes]).toEqual([1, ['anchor_mismatch']])
  })

  it('an audit with a chain catches a confirmed anchor that is said to be in another block', async () => {
    const { code, codes } = await audit(
      withAnchor(await build(), 2, { block_hash: `0x${'44'.repeat(32)}` }),
    )
    expect([code, codes]).toEqual([1, ['anchor_mismatch']])
  })

  it('an audit with a chain catches an anchor that failed', async () => {
    const { code, codes } = await audit(
      withAnchor(await build(), 2, { tx_hash: await sendFailing() }),
    )
    expect([code, codes]).toEqual([1, ['anchor_reverted']])
  })

  it('an audit with a chain catches a head in the contract that the gateway does not serve', async () => {
    const log = await build()
    await anchorHeads(log.notary, [{ size: 7, root: new Uint8Array(32).fill(7) }], anchoring)
    const { code, findings } = await audit(log)
    expect([code, findings.map((finding) => finding.code)]).toEqual([1, ['hidden_anchor']])
    expect(findings[0]?.message).toContain('size 7, root 0707')
  })

  it('an audit with a chain catches a head in the contract of more leaves than the gateway has', async () => {
    const log = await build()
    await anchorHeads(log.notary, [{ size: 70, root: new Uint8Array(32) }], anchoring)
    expect(await audit(log)).toMatchObject({ code: 1, codes: ['hidden_anchor'] })
  })

  it('an audit with a chain catches another history in the contract, and what the contract says', async () => {
    const log = await build()
    const fork = { size: log.leaves.length, root: new Uint8Array(32).fill(9) }
    await anchorHeads(log.notary, [fork], anchoring)
    const { code, codes, findings } = await audit(log)
    expect([code, codes]).toEqual([1, ['equivocation']])
    expect(
      findings.map(({ message }) => message.includes('as the contract itself reports')).sort(),
    ).toEqual([false, true])
  })

  it('an audit with a chain catches a head of another history that is served only by its size', async () => {
    const log = await build()
    const other = await build(
      { salt: 'other', batches: [2, 4, 6], after: { log, heads: 2 } },
      log.notary,
    )
    const hidden = other.heads[2]
    const attack: Attack = (question, honest) =>
      question.resource === 'log/heads' &&
      question.number('limit') === 1 &&
      question.number('cursor') === (hidden?.size ?? 0) - 1
        ? honest(other)
        : honest()
    const { code, codes } = await audit(log, { attack })
    expect([code, codes]).toEqual([1, ['equivocation', 'hidden_anchor']])
  })

  it('an audit with a chain catches a head that the list lacks, though it is served by its size', async () => {
    const log = await build()
    const lacks: Attack = (question, honest) => {
      const answer = honest()
      if (question.resource !== 'log/heads' || question.number('limit') === 1) return answer
      const heads = answer.heads as readonly { readonly size: number }[]
      return { ...answer, heads: heads.filter(({ size }) => size !== log.heads[1]?.size) }
    }
    expect(await audit(log, { attack: lacks })).toMatchObject({ code: 1, codes: ['head_missing'] })
  })

  it('an audit with a chain catches a block of an attestation that the chain does not have', async () => {
    const log = await build()
    const attestations = log.attestations.map((one, at) =>
      at === 1 ? { ...one, block_number: 1 } : one,
    )
    const { code, codes } = await audit({ ...log, attestations })
    expect([code, codes]).toEqual([1, ['head_attestation_block']])
  })

  it('an audit with a chain does not take another chain, or a contract that is not ours, for an answer', async () => {
    const elsewhere = await createTestNotary({ chainId: 1, contract: chain.contract })
    const offline = { batches: BATCHES, anchoring: { chain: null, nonce: 0 } }
    expect(await audit(await buildLog(elsewhere, offline))).toMatchObject({
      code: 1,
      codes: ['wrong_chain'],
    })
    const forged = await createTestNotary({
      chainId: chain.chainId,
      contract: `0x${'ee'.repeat(20)}`,
    })
    expect(await audit(await buildLog(forged, offline))).toMatchObject({
      code: 1,
      codes: ['contract_unknown'],
    })
  })

  it('an audit with a chain says which blocks it left out', async () => {
    const log = await build()
    const newest = Number(await chain.rpc.call('eth_blockNumber', []))
    const { code, outcomes } = await audit(log, { words: ['--from-block', String(newest)] })
    expect([code, outcomes['heads on chain']]).toEqual([0, 'not checked'])
  })

  it('an audit with a chain counts nothing as passed when the chain does not answer, and exits 3', async () => {
    stage.server.serve([await build()])
    const { code, stderr } = await stage.audit('--rpc', stage.server.url)
    expect([code, stderr]).toEqual([3, expect.stringContaining('the chain cannot be reached')])
  }, 60_000)
})

/** A stranger's transaction for a head that is anchored already. */
async function anchorAgain(log: BuiltLog, at: number): Promise<void> {
  const head = log.heads[at]
  if (head !== undefined) await anchorHeads(log.notary, [head], anchoring)
}

/** A transaction with a signature that the contract refuses. */
async function sendFailing(): Promise<string> {
  const head = { size: 9, root: new Uint8Array(32), signature: new Uint8Array(65) }
  const { raw, hash } = signAnchorTransaction({
    ...chain,
    ...anchoring.chain,
    head,
    nonce: anchoring.nonce++,
    fees: TEST_FEES,
  })
  await chain.rpc.call('eth_sendRawTransaction', [raw])
  while ((await chain.rpc.call('eth_getTransactionReceipt', [hash])) === null)
    await new Promise((resolve) => setTimeout(resolve, 5))
  return hash
}

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

  it('the source of a chain takes a single answer that is too large for a fault of the chain', async () => {
    const chain = await openChainSource(endpoint({ callsMax: 0 }), asking)
    await expect(chain.fetchAnchors(HASHES)).rejects.toThrow(ChainFault)
  })

  it('the source of a chain takes a refusal for a fault of the chain, at once', async () => {
    const rpc = endpoint({ fault: new RpcError('refused', 'eth_chainId: no such method') })
    await expect(openChainSource(rpc, asking)).rejects.toThrow(ChainFault)
    expect(rpc.calls).toBe(1)
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
  it('readEventPages asks for all blocks at once, when the endpoint gives them', async () => {
    const { ranges, sizes } = await read(blocks)
    expect(ranges).toEqual([[0, 99]])
    expect(sizes).toHaveLength(100)
  })

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
