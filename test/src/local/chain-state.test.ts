import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Rpc } from '../../../client/rpc.ts'
import { keepUpChain, openChainState } from '../../../src/local/chain-state.ts'
import { recordLog, signAnchors, startTestChain, type TestChain } from '../../support/chain.ts'

let chain: TestChain
let folder: string
beforeEach(async () => {
  chain = await startTestChain()
  folder = await mkdtemp(join(tmpdir(), 'affidavit-state-'))
})
afterEach(async () => {
  await chain.dispose()
  await rm(folder, { recursive: true, force: true })
})

/** Account 8 of anvil's own mnemonic. */
const RELAYER = '0x23618e81e3f5cdf7f54c3d65f7fbc0abf5b21e8f'

type State = {
  readonly accounts: Readonly<Record<string, { readonly nonce: number }>>
  readonly transactions: readonly { readonly info: { readonly from: string } }[]
}

/** Transactions of an account by its nonce, less those that the state holds. */
function missingIn(state: State, account: string): number {
  const held = state.transactions.filter(({ info }) => info.from.toLowerCase() === account).length
  return (state.accounts[account]?.nonce ?? 0) - held
}

/** Sends anchors in bursts, with pauses in which the chain comes to rest. */
async function sendInBursts(rows: Awaited<ReturnType<typeof signAnchors>>): Promise<void> {
  for (let at = 0; at < rows.length; at += 50) {
    const calls = rows
      .slice(at, at + 50)
      .map((row) => ({ method: 'eth_sendRawTransaction', params: [row.raw] }))
    await chain.rpc.batch(calls)
    await new Promise((resolve) => setTimeout(resolve, 60))
  }
}

describe('a saved state', () => {
  it('a saved state holds every transaction that an account has sent, though anvil mines while it dumps', async () => {
    const state = await openChainState(folder)
    const rows = await signAnchors(chain, { count: 1_000 })
    const relayer = rows[0]?.relayer ?? ''
    const counts = { saved: 0, busy: 0, unsoundDumps: 0 }
    let isSending = true
    const sending = sendInBursts(rows).finally(() => {
      isSending = false
    })
    while (isSending) {
      const dump = String(await chain.rpc.call('anvil_dumpState', []))
      const raw: State = JSON.parse(gunzipSync(Buffer.from(dump.slice(2), 'hex')).toString('utf8'))
      if (missingIn(raw, relayer) > 0) counts.unsoundDumps += 1
      if (await state.save(chain.rpc)) counts.saved += 1
      else counts.busy += 1
      const text = await readFile(join(folder, 'state.json'), 'utf8').catch(() => null)
      if (text !== null) expect(missingIn(JSON.parse(text), relayer)).toBe(0)
    }
    await sending
    expect(counts.saved).toBeGreaterThan(0)
    expect(counts.busy).toBeGreaterThan(0)
    console.info(`state under load: ${JSON.stringify(counts)}`)
  }, 60_000)

  it('a state is not written when a block came while it was dumped', async () => {
    const state = await openChainState(folder)
    const meddling: Rpc = {
      ...chain.rpc,
      call: async (method, params) => {
        const result = await chain.rpc.call(method, params)
        if (method === 'anvil_dumpState') await chain.rpc.call('anvil_mine', ['0x1'])
        return result
      },
    }
    expect(await state.save(meddling)).toBe(false)
    expect(await readdir(folder)).toEqual([])
    expect(await state.save(chain.rpc)).toBe(true)
    expect(await readdir(folder)).toEqual(['state.json'])
  })

  it('a state is not written while a transaction waits', async () => {
    const state = await openChainState(folder)
    await chain.rpc.call('evm_setAutomine', [false])
    const [row] = await signAnchors(chain, { count: 1 })
    await chain.rpc.call('eth_sendRawTransaction', [row?.raw])
    expect(await state.save(chain.rpc)).toBe(false)
  })

  it('a saved state stays as it was when the chain gives nonsense', async () => {
    const state = await openChainState(folder)
    await state.save(chain.rpc)
    const before = await readFile(join(folder, 'state.json'))
    await chain.rpc.call('anvil_mine', ['0x1'])
    for (const dump of ['0x1f8b', '0x', 7, null]) {
      const ill: Rpc = {
        ...chain.rpc,
        call: async (method, params) =>
          method === 'anvil_dumpState' ? dump : await chain.rpc.call(method, params),
      }
      await expect(state.save(ill)).rejects.toThrow()
    }
    expect(await readFile(join(folder, 'state.json'))).toEqual(before)
    expect(await readdir(folder)).toEqual(['state.json'])
  })

  it('a state is written at the end though a mined transaction still counts as waiting', async () => {
    const state = await openChainState(folder)
    let lagging = 3
    const rpc: Rpc = {
      ...chain.rpc,
      call: async (method, params) =>
        method === 'txpool_status' && lagging-- > 0
          ? { pending: '0x1', queued: '0x0' }
          : await chain.rpc.call(method, params),
    }
    const upkeep = keepUpChain({ rpc, state, relayer: RELAYER, log: recordLog().log })
    await upkeep.stop({ save: true })
    expect(await readdir(folder)).toEqual(['state.json'])
  })
})
