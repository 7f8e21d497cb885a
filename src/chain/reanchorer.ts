import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import { createLoop } from '../runtime/loop.ts'
import type { ReanchorsStore, TakenAnchor } from './reanchors-store.ts'
import type { RelayerNonces } from './relayer-nonces.ts'
import { CommitRaceLost } from './relayers-store.ts'
import type { RawAnchorTransaction } from './sign-anchor.ts'

const REANCHOR_INTERVAL_MS = 5_000
/** Maximum number of new anchors in a pass. Commits for callers can run between two passes. */
const REANCHORS_MAX = 32
const FAULT_LOG_INTERVAL_MS = 60_000

/** Makes new anchors for heads whose anchors can never be mined. */
export type Reanchorer = {
  start(): void
  stop(): Promise<void>
  /** Number of new anchors since the start. */
  count(): number
}

type ReanchorerOptions = {
  readonly reanchors: ReanchorsStore
  /** This relayer pays for the new anchors. */
  readonly nonces: Pick<RelayerNonces, 'relayer' | 'use'>
  readonly chainId: number
  readonly sign: (
    nonce: number,
    taken: Pick<TakenAnchor, 'contract' | 'head'>,
  ) => RawAnchorTransaction
  /** Called after each new anchor, to broadcast it. */
  readonly onReanchor: () => void
  readonly log: Logger
  /** Unix milliseconds. */
  readonly now: () => number
  readonly intervalMs?: number
}

/**
 * Makes a new anchor for the head of each taken anchor, of any relayer. If several gateways run,
 * only one makes the anchor. The contract accepts the same head more than once.
 */
export function createReanchorer(options: ReanchorerOptions): Reanchorer {
  const { reanchors, nonces, chainId, sign, onReanchor, log, now } = options
  const { intervalMs = REANCHOR_INTERVAL_MS } = options
  const faults = createFaultLog(FAULT_LOG_INTERVAL_MS, now)
  let count = 0

  async function replace(taken: TakenAnchor): Promise<void> {
    const { relayer } = nonces
    const made = await nonces.use(async (nonce) => {
      const signed = sign(nonce, { contract: taken.contract, head: taken.head })
      await reanchors.replace(taken, {
        relayer,
        nonce,
        ...signed,
        createdAt: Math.floor(now() / 1000),
      })
      return { nonce, hash: signed.hash }
    })
    count += 1
    log.warn(
      {
        relayer: taken.relayer,
        nonce: taken.nonce,
        size: taken.head.size,
        new_relayer: relayer,
        new_nonce: made.nonce,
        tx_hash: made.hash,
      },
      'head anchored again: the transaction of its first anchor can never be mined',
    )
    onReanchor()
  }

  const loop = createLoop(async (signal) => {
    try {
      const found = await reanchors.listTaken(chainId, REANCHORS_MAX)
      for (const taken of found) if (!signal.aborted) await replace(taken)
      // There may be more anchors after a full page.
      return found.length === REANCHORS_MAX ? 0 : intervalMs
    } catch (error) {
      if (!(error instanceof CommitRaceLost) && faults.isDue())
        log.warn({ err: asError(error) }, 'lost anchors could not be made again; tried again')
      return intervalMs
    }
  })

  return { start: loop.start, stop: loop.stop, count: () => count }
}
