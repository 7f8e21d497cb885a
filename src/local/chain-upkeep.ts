import { z } from 'zod'
import { type Rpc, RpcError } from '../chain/rpc.ts'
import type { Logger } from '../observability/logger.ts'
import type { ChainState } from './chain-state.ts'

/** How often a running chain is looked after; a save follows a change within about this time. */
const UPKEEP_INTERVAL_MS = 1_000
/**
 * Pause after a save, in lengths of that save, so that saving a long chain never takes more than a
 * twentieth of the time (10,000 anchors: 18 MB, about 0.3 s).
 */
const SAVE_PAUSE_FACTOR = 20

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
  let running: Promise<void> = Promise.resolve()
  const timer = setInterval(() => {
    if (!isBusy) running = look()
  }, UPKEEP_INTERVAL_MS)
  let isBusy = false

  async function look(): Promise<void> {
    isBusy = true
    try {
      stuckAt = await unstick(stuckAt)
      const startedAt = performance.now()
      if (startedAt < saveNotBefore) return
      await state.save(rpc)
      const endedAt = performance.now()
      saveNotBefore = endedAt + (endedAt - startedAt) * SAVE_PAUSE_FACTOR
    } catch (error) {
      // A dead chain is the supervisor's business; a state that is not saved costs sending the
      // latest anchors again.
      log.debug({ err: error }, 'local chain not looked after this time')
    } finally {
      isBusy = false
    }
  }

  /**
   * anvil 1.7 can file a transaction as queued while the one before it is just being mined. Nothing
   * ever releases it, and sending it again is refused as known. Taken out of the pool, it can be
   * sent again, which the broadcaster does.
   */
  async function unstick(before: string | null): Promise<string | null> {
    const pool = Pool.safeParse(await rpc.call('txpool_status', []))
    if (!pool.success)
      throw new RpcError('bad_answer', 'expected numbers of pending and queued transactions')
    if (Number(pool.data.pending) !== 0 || Number(pool.data.queued) === 0) return null
    const now = `${pool.data.queued} at ${await rpc.call('eth_blockNumber', [])}`
    if (now !== before) return now
    await rpc.call('anvil_removePoolTransactions', [relayer])
    log.warn(
      { queued: Number(pool.data.queued) },
      'local chain had stuck transactions, taken out to be sent again',
    )
    return null
  }

  return {
    stop: async ({ save }) => {
      clearInterval(timer)
      await running
      if (save) await state.save(rpc).catch(() => false)
    },
  }
}

const Pool = z.object({ pending: z.string(), queued: z.string() })
