import { type Broadcaster, createBroadcaster } from '../chain/broadcaster.ts'
import type { Logger } from '../logger.ts'
import { createAnchorsStore } from '../stores/anchors.ts'
import type { Database } from '../stores/database.ts'
import type { Chain } from './chain.ts'

/** The local chain's pool is emptied by its upkeep when it is stuck (src/local/chain-upkeep.ts): fill it again soon. */
const LOCAL_REBROADCAST_MS = 2_000

/** Starts to bring the stored anchors onto the chain. */
export function startBroadcaster({
  database,
  chain,
  confirmations,
  log,
}: {
  readonly database: Database
  readonly chain: Chain
  readonly confirmations: number
  readonly log: Logger
}): Broadcaster {
  const { rpc, chainId, contract, relayer } = chain
  const broadcaster = createBroadcaster({
    rpc,
    anchors: createAnchorsStore(database),
    relayer: relayer.address,
    chainId,
    contract,
    confirmations,
    log,
    ...(chain.publicUrl === null ? {} : { rebroadcastMs: LOCAL_REBROADCAST_MS }),
  })
  broadcaster.start()
  return broadcaster
}
