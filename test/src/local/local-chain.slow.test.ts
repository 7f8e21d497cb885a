import { mkdtemp, readdir, readFile, rm, truncate } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { AFFIDAVIT } from '#attestation/contract/artifact.ts'
import { recordLog, signAnchors, startTestChain, type TestChain } from '../../support/chain.ts'
import { until } from '../../support/until.ts'

let folder: string
const chains: TestChain[] = []

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-anvil-'))
})
afterEach(async () => {
  for (const chain of chains.splice(0)) await chain.dispose()
  await rm(folder, { recursive: true, force: true })
})

async function start(options: Parameters<typeof startTestChain>[0] = {}): Promise<TestChain> {
  const chain = await startTestChain({ folder, ...options })
  chains.push(chain)
  return chain
}

async function sendAnchors(chain: TestChain, count: number, nonce = 0): Promise<readonly string[]> {
  const rows = await signAnchors(chain, { count, nonce })
  for (const row of rows) await chain.rpc.call('eth_sendRawTransaction', [row.raw])
  await until('they are mined', async () =>
    (
      await statuses(
        chain,
        rows.map((row) => row.txHash),
      )
    ).every((status) => status === '0x1'),
  )
  return rows.map((row) => row.txHash)
}

/** Status of each transaction's receipt; null where the chain knows none. */
async function statuses(
  chain: TestChain,
  hashes: readonly string[],
): Promise<readonly (string | null)[]> {
  const replies = await chain.rpc.batch(
    hashes.map((hash) => ({ method: 'eth_getTransactionReceipt', params: [hash] })),
  )
  return replies.map((reply) =>
    reply.kind === 'result' ? ((reply.value as { status: string } | null)?.status ?? null) : null,
  )
}

async function code(chain: TestChain): Promise<unknown> {
  return await chain.rpc.call('eth_getCode', [chain.contract, 'latest'])
}

describe('a local chain', () => {
  it('a local chain has the contract, and a relayer with money', async () => {
    const chain = await start()
    expect(await code(chain)).toBe(AFFIDAVIT.deployedBytecode)
    const balance = await chain.rpc.call('eth_getBalance', [
      '0x23618e81e3f5cdf7f54c3d65f7fbc0abf5b21e8f',
      'latest',
    ])
    expect(BigInt(String(balance))).toBe(10n ** 27n)
  })

  it('a local chain knows its transactions after it was stopped and started', async () => {
    const first = await start()
    const hashes = await sendAnchors(first, 30)
    const blocks = await first.rpc.call('eth_getTransactionReceipt', [hashes[29]])
    await first.stop()
    const again = await start()
    expect(await statuses(again, hashes)).toEqual(hashes.map(() => '0x1'))
    expect(await again.rpc.call('eth_getTransactionReceipt', [hashes[29]])).toEqual(blocks)
    expect(await again.rpc.call('eth_getTransactionByHash', [hashes[29]])).toMatchObject({
      hash: hashes[29],
    })
    await sendAnchors(again, 5, 30)
  })

  it('a local chain begins with the same block however often it is started', async () => {
    const genesisOf = (chain: TestChain) => chain.rpc.call('eth_getBlockByNumber', ['0x0', false])
    const first = await start()
    const genesis = await genesisOf(first)
    await first.stop()
    // A genesis that anvil makes in another second has another hash.
    const madeInSecond = Math.floor(Date.now() / 1000)
    await until('it is another second', () => Date.now() / 1000 > madeInSecond + 1)
    for (const nonce of [0, 1]) {
      const again = await start()
      expect(await genesisOf(again)).toEqual(genesis)
      await sendAnchors(again, 1, nonce)
      await again.stop()
    }
  })

  it('a local chain comes back on the same port after a kill, and knows what was saved', async () => {
    let restarts = 0
    const chain = await start({ onRestart: () => restarts++ })
    const hashes = await sendAnchors(chain, 10)
    await until('the state is saved', async () => await isSaved(hashes.at(-1) ?? ''))
    const pid = chain.pid
    if (pid !== null) process.kill(pid, 'SIGKILL')
    await until('it is back', () => restarts === 1)
    expect(chain.pid).not.toBe(pid)
    expect(await statuses(chain, hashes)).toEqual(hashes.map(() => '0x1'))
    expect(await code(chain)).toBe(AFFIDAVIT.deployedBytecode)
  })

  async function isSaved(hash: string): Promise<boolean> {
    return (await readFile(join(folder, 'chain/state.json'), 'utf8')).includes(hash)
  }

  it('a local chain starts anew, and says so, when its state is damaged', async () => {
    const chain = await start()
    await sendAnchors(chain, 3)
    await chain.stop()
    const file = join(folder, 'chain/state.json')
    await truncate(file, 1_000)
    const { log, lines } = recordLog()
    const again = await start({ log })
    expect(await code(again)).toBe(AFFIDAVIT.deployedBytecode)
    expect(lines).toContainEqual(
      expect.objectContaining({
        level: 'error',
        message: expect.stringContaining('refused its state'),
      }),
    )
    expect(await readdir(join(folder, 'chain'))).toContain('state.refused.json')
    await sendAnchors(again, 3)
  })

  it('a local chain releases transactions that its pool holds back for ever', async () => {
    const chain = await start()
    const [first, second] = await signAnchors(chain, { count: 2 })
    await chain.rpc.call('eth_sendRawTransaction', [second?.raw])
    expect(await chain.rpc.call('txpool_status', [])).toEqual({ pending: '0x0', queued: '0x1' })
    await until('the pool is empty', async () => {
      const pool = (await chain.rpc.call('txpool_status', [])) as { readonly queued: string }
      return pool.queued === '0x0'
    })
    for (const row of [first, second]) await chain.rpc.call('eth_sendRawTransaction', [row?.raw])
    await until('both are mined', async () => {
      const known = await statuses(chain, [first?.txHash ?? '', second?.txHash ?? ''])
      return known.every((status) => status === '0x1')
    })
  })

  it('a local chain cannot be used from a page in a browser', async () => {
    const chain = await start()
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] })
    const answer = await fetch(chain.rpcUrl, {
      method: 'POST',
      headers: { 'content-type': 'application/json', origin: 'https://example.com' },
      body,
    })
    expect(answer.headers.get('access-control-allow-origin')).toBeNull()
  })
})

describe('the port of a local chain', () => {
  it('the port of a local chain is named in the error when another program has it', async () => {
    const other = createServer()
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
    const address = other.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    try {
      await expect(start({ port })).rejects.toThrow(`CHAIN_PORT ${port} is in use`)
    } finally {
      await new Promise((resolve) => other.close(resolve))
    }
  })
})
