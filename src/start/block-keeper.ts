import type { AnchorBlocksStore } from '../chain/anchor-blocks-store.ts'
import { createBlockKeeper } from '../chain/block-keeper.ts'
import { createBlockProofs } from '../chain/block-proofs.ts'
import { fetchBlock } from '../chain/read-block.ts'
import type { Logger } from '../observability/logger.ts'
import type { EvidenceSources } from '../verified/evidence.ts'
import type { Chain } from './chain.ts'

/** Share of its time that the event loop works, from which on reading blocks waits. */
export const BUSY_UTILIZATION_MIN = 0.8

/** Starts to store the block proofs of confirmed anchors; `sources` also reads single ones at once. */
export function startBlockKeeper({
  blocks,
  chain: { rpc, chainId },
  log,
}: {
  readonly blocks: AnchorBlocksStore
  readonly chain: Chain
  readonly log: Logger
}): { readonly sources: EvidenceSources; stop(): Promise<void> } {
  const proofs = createBlockProofs({ blocks, fetchBlock: (hash, signal) => fetchBlock(rpc, hash, signal) })
  const keeper = createBlockKeeper({ blocks, proofs, chainId, isBusy: createBusyCheck(), log })
  keeper.start()
  return {
    sources: { anchors: blocks, proofs, chainId },
    stop: async () => {
      await Promise.all([proofs.stop(), keeper.stop()])
    },
  }
}

/** Whether the event loop was busy since it was last asked. */
function createBusyCheck(): () => boolean {
  let before = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, before)
    before = now
    return utilization >= BUSY_UTILIZATION_MIN
  }
}
