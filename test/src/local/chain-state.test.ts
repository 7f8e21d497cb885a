import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Rpc } from '#client/rpc.ts'
import { openChainState } from '#src/local/chain-state.ts'
import { signAnchors, startTestChain, type TestChain } from '../../support/chain.ts'
import { folderOfTest } from '../../support/folders.ts'

let chain: TestChain
let folder: string
beforeEach(async () => {
  chain = await startTestChain()
  folder = folderOfTest()
})
afterEach(() => chain.dispose())

type State = {
  readonly accounts: Readonly<Record<string, { readonly nonce: number }>>
  readonly transactions: readonly { readonly info: { readonly from: string } }[]
}

/** Transactions of an account by its nonce, less those that the state holds. */
function missingIn(state: State, account: string): number {
  const held = state.transactions.filter(({ info }) => info.from.toLowerCase() === account).length
  return (state.accounts[account]?.nonce ?? 0) - held
}

/** The chain, which is sent these transactions each time that it dumps its state. */
function sendDuringDump(raws: readonly (string | undefined)[]): Rpc {
  const calls = raws.map((raw) => ({ method: 'eth_sendRawTransaction', params: [raw] }))
  return {
    ...chain.rpc,
    call: async (method, params) => {
      if (method !== 'anvil_dumpState') return await chain.rpc.call(method, params)
      const sending = chain.rpc.batch(calls)
      const dump = await chain.rpc.call(method, params)
      await sending
      return dump
    },
  }
}

describe('a saved state', () => {
  it('a saved state holds every transaction that an account has sent, though anvil mines while it dumps', async () => {
    const rows = await signAnchors(chain, { count: 150 })
    const relayer = rows[0]?.relayer ?? ''
    const readSaved = async (): Promise<State> =>
      JSON.parse(await readFile(join(folder, 'state.json'), 'utf8'))

    await (await openChainState(folder)).save(chain.rpc)
    for (let at = 0; at < rows.length; at += 50) {
      // A state that has saved the newest block does not dump it again.
      const state = await openChainState(folder)
      const raws = rows.slice(at, at + 50).map(({ raw }) => raw)
      await state.save(sendDuringDump(raws))
      expect(missingIn(await readSaved(), relayer)).toBe(0)
      await expect.poll(() => state.save(chain.rpc), { timeout: 10_000 }).toBe(true)
      expect(missingIn(await readSaved(), relayer)).toBe(0)
    }
    expect((await readSaved()).accounts[relayer]?.nonce).toBeGreaterThan(0)
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
})
