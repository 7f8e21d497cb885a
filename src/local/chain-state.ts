import { mkdir, open, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { z } from 'zod'
import { type Rpc, RpcError } from '../chain/rpc.ts'
import { keepOneGenesis } from './kept-genesis.ts'

/**
 * Keeps the local chain's state in one file. anvil's own --state does not do: it writes in place (a
 * kill leaves half a file, which anvil then refuses), it dumps while blocks are mined (an account's
 * nonce can then be ahead of the transactions, which are lost for good), and it dumps an idle chain
 * over and over.
 */
export type ChainState = {
  /**
   * The state's file when there is one, for --load-state; the chain that is loaded from it has the
   * genesis it began with.
   */
  find(): Promise<string | null>
  /**
   * Saves the state when the chain changed and stands still. True when the file is up to date now,
   * false when the chain was busy (to be tried again). Throws RpcError and file system errors; the
   * file stays as it was.
   */
  save(rpc: Rpc): Promise<boolean>
  /** Moves a state that anvil does not take out of the way and gives its new path. */
  setAside(): Promise<string>
}

/** Opens the state kept in `folder`, which is made when missing. */
export async function openChainState(folder: string): Promise<ChainState> {
  await mkdir(folder, { recursive: true })
  const file = join(folder, 'state.json')
  let savedBlock: string | null = null

  return {
    find: async () => {
      savedBlock = null
      const state = await readFile(file, 'utf8').catch(() => null)
      if (state === null) return null
      const cleared = keepOneGenesis(state)
      if (cleared !== null) await replaceFile(file, Buffer.from(cleared))
      return file
    },
    save: async (rpc) => {
      const before = await readStandstill(rpc)
      if (before === null) return false
      if (before === savedBlock) return true
      const dump = await rpc.call('anvil_dumpState', [])
      // Nothing was waiting before and after, and no block came between: so nothing was mined
      // meanwhile.
      if ((await readStandstill(rpc)) !== before) return false
      await replaceFile(file, await unpack(dump))
      savedBlock = before
      return true
    },
    setAside: async () => {
      const aside = join(folder, 'state.refused.json')
      await rename(file, aside)
      return aside
    },
  }
}

/** Hash of the newest block when no transaction waits to be mined; else null. */
async function readStandstill(rpc: Rpc): Promise<string | null> {
  // In this order: a transaction leaves the pool only after its block is in place.
  const pool = Pool.safeParse(await rpc.call('txpool_status', []))
  const block = Block.safeParse(await rpc.call('eth_getBlockByNumber', ['latest', false]))
  if (!pool.success || !block.success)
    throw new RpcError('bad_answer', 'expected a pool and a block')
  return Number(pool.data.pending) === 0 ? block.data.hash : null
}

const Pool = z.object({ pending: z.string() })
const Block = z.object({ hash: z.string() })

/** anvil_dumpState gives the 0x hex of gzipped JSON; --load-state reads the JSON. */
async function unpack(dump: unknown): Promise<Buffer> {
  if (typeof dump !== 'string' || !dump.startsWith('0x'))
    throw new RpcError('bad_answer', 'expected a state in hex')
  return await promisify(gunzip)(Buffer.from(dump.slice(2), 'hex'))
}

/** Old or new content, whatever happens and whenever; never a part. */
async function replaceFile(file: string, content: Buffer): Promise<void> {
  const next = `${file}.next`
  const handle = await open(next, 'w')
  try {
    await handle.writeFile(content)
    await handle.sync()
  } catch (error) {
    await rm(next, { force: true })
    throw error
  } finally {
    await handle.close()
  }
  await rename(next, file)
}
