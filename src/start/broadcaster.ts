import { randomUUID } from 'node:crypto'
import { signAnchorTransaction } from '../chain/anchor-transaction.ts'
import { createAnchorsStore } from '../chain/anchors-store.ts'
import { createBroadcaster } from '../chain/broadcaster.ts'
import { createReanchorer, type Reanchorer } from '../chain/reanchorer.ts'
import { createReanchorsStore } from '../chain/reanchors-store.ts'
import { createRelayerFollowers, type RelayerFollowers } from '../chain/relayer-followers.ts'
import type { RelayerNonces } from '../chain/relayer-nonces.ts'
import { createRelayersStore } from '../chain/relayers-store.ts'
import type { GatewayConfig } from '../config.ts'
import type { Logger } from '../observability/logger.ts'
import type { Database } from '../storage/database.ts'
import type { Chain } from './chain.ts'

/** The local chain's pool is emptied by its upkeep when it is stuck (src/local/chain-upkeep.ts): fill it again soon. */
const LOCAL_REBROADCAST_MS = 2_000

/** Starts to bring the stored anchors of all relayers onto the chain. */
export function startFollowers({
  database,
  chain,
  confirmations,
  nonces,
  log,
}: {
  readonly database: Database
  readonly chain: Chain
  readonly confirmations: number
  /** Of the chain's relayer, told how many of its transactions the chain has. */
  readonly nonces: Pick<RelayerNonces, 'noteCount'>
  readonly log: Logger
}): RelayerFollowers {
  const { rpc, chainId, contract, relayer } = chain
  const anchors = createAnchorsStore(database)
  const followers = createRelayerFollowers({
    relayer: relayer.address,
    chainId,
    store: createRelayersStore(database),
    follow: (address) =>
      createBroadcaster({
        ...{ rpc, anchors, relayer: address, chainId, contract, confirmations, log },
        ...(address === relayer.address ? { onCount: nonces.noteCount } : {}),
        ...(chain.publicUrl === null ? {} : { rebroadcastMs: LOCAL_REBROADCAST_MS }),
      }),
    holder: randomUUID(),
    log,
  })
  followers.start()
  return followers
}

/** Starts to anchor again, with the chain's relayer, what can never be mined as it is. */
export function startReanchorer({
  database,
  chain: { chainId, relayer },
  nonces,
  fees,
  onReanchor,
  log,
}: {
  readonly database: Database
  readonly chain: Chain
  readonly nonces: RelayerNonces
  readonly fees: GatewayConfig['fees']
  readonly onReanchor: () => void
  readonly log: Logger
}): Reanchorer {
  const reanchorer = createReanchorer({
    reanchors: createReanchorsStore(database),
    nonces,
    chainId,
    sign: (nonce, { contract, head }) =>
      signAnchorTransaction({ relayerKey: relayer.key, chainId, contract, nonce, head, fees }),
    onReanchor,
    log,
    now: Date.now,
  })
  reanchorer.start()
  return reanchorer
}
