import { mkdir, rename, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { z } from 'zod'
import { type Rpc, RpcError } from '../../client/rpc.ts'
import type { Logger } from '../observability/logger.ts'
import { createLoop, pause } from '../runtime/loop.ts'
import { placeFile } from '../runtime/place-file.ts'

/**
 * Keeps the local chain's state in one file. anvil's own --state does not do: it writes in place (a
 * kill leaves half a file, which anvil then refuses), it dumps while blocks are mined (an account's
 * nonce can then be ahead of the transactions, which are lost forever), and it dumps an idle chain
 * over and over.
 */
export type ChainState = {
  /** The state's file when there is one, for --load-state. */
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
      return (await stat(file).catch(() => null)) === null ? null : file
    },
    save: async (rpc) => {
      const before = await readStandstill(rpc)
      if (before === null) return false
      if (before === savedBlock) return true
      const dump = await rpc.call('anvil_dumpState', [])
      // Nothing was waiting before and after, and no block came between: so nothing was mined
      // meanwhile.
      if ((await readStandstill(rpc)) !== before) return false
      await placeFile(file, await unpack(dump), { draft: `${file}.next` })
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
  const { pending } = await readPool(rpc)
  const block = Block.safeParse(await rpc.call('eth_getBlockByNumber', ['latest', false]))
  if (!block.success) throw new RpcError('bad_answer', 'expected a block')
  return pending === 0 ? block.data.hash : null
}

async function readPool(rpc: Rpc): Promise<z.infer<typeof Pool>> {
  const pool = Pool.safeParse(await rpc.call('txpool_status', []))
  if (!pool.success) throw new RpcError('bad_answer', 'expected numbers of transactions')
  return pool.data
}

const Pool = z.object({ pending: z.coerce.number(), queued: z.coerce.number() })
const Block = z.object({ hash: z.string() })

/** anvil_dumpState gives the 0x hex of gzipped JSON; --load-state reads the JSON. */
async function unpack(dump: unknown): Promise<Buffer> {
  if (typeof dump !== 'string' || !dump.startsWith('0x'))
    throw new RpcError('bad_answer', 'expected a state in hex')
  return await promisify(gunzip)(Buffer.from(dump.slice(2), 'hex'))
}

/** How often a running chain is looked after; a save follows a change within about this time. */
const UPKEEP_INTERVAL_MS = 1_000
/**
 * Pause after a save, in lengths of that save, so that saving a long chain never takes more than a
 * twentieth of the time (10,000 anchors: 18 MB, about 0.3 s).
 */
const SAVE_PAUSE_FACTOR = 20

/** How long a chain that is stopped may take to stand still, so that its last state is saved. */
const LAST_SAVE_WAIT_MS = 2_000
const LAST_SAVE_POLL_MS = 10

export type ChainUpkeep = {
  /** Stops looking; with `save`, the chain's last state is saved first. Never rejects. */
  stop(options: { readonly save: boolean }): Promise<void>
}

/**
 * Looks after a running anvil: saves its state while it changes, and gets its pool going when that
 * is stuck.
 */
export function keepUpChain(options: {
  readonly rpc: Rpc
  readonly state: ChainState
  readonly relayer: string
  readonly log: Logger
}): ChainUpkeep {
  const { rpc, state, relayer, log } = options
  let saveNotBefore = 0
  let stuckAt: string | null = null

  const loop = createLoop(async (signal) => {
    await pause(UPKEEP_INTERVAL_MS, signal)
    // A dead chain is the keeper's business; a state that is not saved costs sending the latest
    // anchors again.
    if (!signal.aborted)
      await look().catch((error: unknown) =>
        log.debug({ err: error }, 'local chain not looked after this time'),
      )
    return 0
  })

  async function look(): Promise<void> {
    stuckAt = await unstick(stuckAt)
    const startedAt = performance.now()
    if (startedAt < saveNotBefore) return
    await state.save(rpc)
    const endedAt = performance.now()
    saveNotBefore = endedAt + (endedAt - startedAt) * SAVE_PAUSE_FACTOR
  }

  /**
   * anvil 1.7 can file a transaction as queued while the one before it is just being mined. Nothing
   * ever releases it, and sending it again is refused as known. Taken out of the pool, it can be
   * sent again, which the broadcaster does.
   */
  async function unstick(before: string | null): Promise<string | null> {
    const { pending, queued } = await readPool(rpc)
    if (pending !== 0 || queued === 0) return null
    const now = `${queued} at ${await rpc.call('eth_blockNumber', [])}`
    if (now !== before) return now
    await rpc.call('anvil_removePoolTransactions', [relayer])
    log.warn({ queued }, 'local chain had stuck transactions, taken out to be sent again')
    return null
  }

  /** A transaction that was just mined counts as waiting for a moment longer. */
  async function saveAtStandstill(): Promise<void> {
    const until = performance.now() + LAST_SAVE_WAIT_MS
    while (!(await state.save(rpc)) && performance.now() < until) await sleep(LAST_SAVE_POLL_MS)
  }

  loop.start()
  return {
    stop: async ({ save }) => {
      await loop.stop()
      if (save)
        await saveAtStandstill().catch((error: unknown) =>
          log.debug({ err: error }, 'local chain not saved at its end'),
        )
    },
  }
}
