import { mkdir, rename, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { z } from 'zod'
import { type Rpc, RpcError } from '#client/rpc.ts'
import type { Logger } from '../observability/logger.ts'
import { createLoop, pause } from '../runtime/loop.ts'
import { placeFile } from '../runtime/place-file.ts'

/**
 * The local chain's state in one file. anvil's own `--state` has three faults:
 * - A kill leaves half a file, which anvil then refuses.
 * - A dump during mining can lack a transaction but include the sender's next nonce. This
 *   transaction is lost forever.
 * - It writes the state of an idle chain again and again.
 */
export type ChainState = {
  /** The file's path for `--load-state`. Null when there is no file. */
  find(): Promise<string | null>
  /**
   * True when the file is up to date. False when the chain was mining; the caller tries again.
   * Throws RpcError and file system errors, and keeps the old file.
   */
  save(rpc: Rpc): Promise<boolean>
  /** Renames a file that anvil refuses. Returns the new path. */
  setAside(): Promise<string>
}

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
      // A block was mined during the dump, or is about to be mined.
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

/** The newest block's hash. Null when a transaction waits to be mined. */
async function readStandstill(rpc: Rpc): Promise<string | null> {
  // The pool must be read first, because a transaction leaves the pool only after its block exists.
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

/** anvil_dumpState returns gzipped JSON as 0x hex. `--load-state` reads the JSON. */
async function unpack(dump: unknown): Promise<Buffer> {
  if (typeof dump !== 'string' || !dump.startsWith('0x'))
    throw new RpcError('bad_answer', 'expected a state in hex')
  return await promisify(gunzip)(Buffer.from(dump.slice(2), 'hex'))
}

const UPKEEP_INTERVAL_MS = 1_000
/**
 * Saving takes at most a twentieth of the time, even on a long chain (10,000 anchors: 18 MB, about
 * 0.3 s).
 */
const SAVE_PAUSE_FACTOR = 20

/** A stop waits up to this time until no block is being mined, and then saves the last state. */
const LAST_SAVE_WAIT_MS = 2_000
const LAST_SAVE_POLL_MS = 10

type ChainUpkeep = {
  /** With `save`, first saves the chain's last state. Never rejects. */
  stop(options: { readonly save: boolean }): Promise<void>
}

/** Saves the state of a running anvil when it changes, and removes stuck transactions. */
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
    // A failure needs no action: another part restarts an ended chain, and the broadcaster sends
    // lost anchors again.
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
   * Removes queued transactions, so that the broadcaster can send them again. anvil 1.7 can keep a
   * transaction queued forever if it arrives while the previous one is mined.
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

  /** Retries, because anvil counts a mined transaction as pending for a moment. */
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
