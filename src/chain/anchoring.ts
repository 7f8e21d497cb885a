import { randomUUID } from 'node:crypto'
import type { LogDomain } from '../../attestation/tree-head.ts'
import type { RelayerOperations } from '../api/control-operations.ts'
import type { Logger } from '../observability/logger.ts'
import type { Database } from '../storage/database.ts'
import { type AnchorBlocksStore, createAnchorBlocksStore } from './anchor-blocks-store.ts'
import {
  type Fees,
  type RawAnchorTransaction,
  signAnchorTransaction,
} from './anchor-transaction.ts'
import { createAnchorsStore } from './anchors-store.ts'
import { type BlockProofs, createBlockKeeper, createBlockProofs } from './block-proofs.ts'
import { type BroadcasterStatus, createBroadcaster } from './broadcaster.ts'
import {
  countTransactions,
  createRecentBlocks,
  fetchBalance,
  type RecentBlock,
} from './chain-reads.ts'
import type { Chain } from './open-chain.ts'
import { fetchBlock } from './read-block.ts'
import { createReanchorer } from './reanchorer.ts'
import { createReanchorsStore } from './reanchors-store.ts'
import { createRelayerFollowers, createRelayerTurn } from './relayer-followers.ts'
import { type NoncedRelayer, RelayerNonces } from './relayer-nonces.ts'
import { createRelayerOperations } from './relayer-operations.ts'
import {
  type AnchorLag,
  createAnchorLag,
  createNonceStore,
  createRelayersStore,
} from './relayers-store.ts'

/**
 * Everything about anchors except storing them with their records: the chain, as the gateway uses
 * it.
 */
export type Anchoring = {
  readonly domain: LogDomain
  /** The gateway's own relayer, which signs. */
  readonly relayer: NoncedRelayer
  /** The relayer's nonces, shared by all committers. */
  readonly nonces: RelayerNonces
  /**
   * Signs the anchor of a head. `contract` is given when the head is signed for another contract.
   */
  sign(
    nonce: number,
    head: Parameters<typeof signAnchorTransaction>[0]['head'],
    contract?: string,
  ): RawAnchorTransaction
  /** To be called when there is a new anchor, or the chain is back. Cheap. */
  notify(): void
  status(): BroadcasterStatus
  /**
   * A recent block with the configured confirmations, not from before the contract. Throws
   * RpcError.
   */
  readonly fetchRecentBlock: (signal?: AbortSignal) => Promise<RecentBlock>
  /** Anchors and the proofs of their blocks. */
  readonly evidence: {
    readonly anchors: Pick<AnchorBlocksStore, 'findAnchor'>
    readonly proofs: Pick<BlockProofs, 'prove'>
    readonly chainId: number
  }
  /** See BlockProofs. */
  readonly unreadableBlocks: BlockProofs['unreadable']
  readonly operations: RelayerOperations
  /** For metrics. */
  readonly figures: {
    readonly lag: () => Promise<AnchorLag>
    /** Number of anchors made again, since the start. */
    readonly reanchored: () => number
    /** In wei, for each relayer that has anchors on their way, and for the gateway's own. */
    readonly balances: () => Promise<ReadonlyMap<string, bigint>>
  }
  /** Aborts what runs and resolves when nothing runs. Nothing is lost. */
  stop(): Promise<void>
}

/**
 * When the local chain's pool is stuck, its upkeep empties it (src/local/local-chain.ts): send the
 * anchors again soon.
 */
const LOCAL_REBROADCAST_MS = 2_000

/**
 * Starts to bring the stored anchors of all relayers onto the chain. An anchor that can never be
 * mined is made again with the chain's relayer, and the block proofs of confirmed anchors are
 * stored.
 */
export function startAnchoring({
  database,
  chain,
  confirmations,
  fees,
  log,
}: {
  readonly database: Database
  readonly chain: Chain
  readonly confirmations: number
  readonly fees: Fees
  readonly log: Logger
}): Anchoring {
  const { rpc, chainId, contract } = chain
  const { address, key: relayerKey } = chain.relayer
  const relayer: NoncedRelayer = {
    address,
    countTransactions: (signal) => countTransactions(rpc, { address, chainId }, signal),
  }
  const nonces = new RelayerNonces({ commits: createNonceStore(database), relayer, log })
  const relayers = createRelayersStore(database)
  const anchors = createAnchorsStore(database)
  const turn = database.session === null ? null : createRelayerTurn(database.session, address)
  const followers = createRelayerFollowers({
    turn,
    relayer: address,
    chainId,
    store: relayers,
    follow: (followed) =>
      createBroadcaster({
        rpc,
        anchors,
        relayer: followed,
        chainId,
        contract,
        confirmations,
        log,
        ...(followed === address
          ? { onCount: nonces.recordCount, isOurs: () => turn?.isOurs() ?? true }
          : {}),
        ...(chain.publicUrl === null ? {} : { rebroadcastMs: LOCAL_REBROADCAST_MS }),
      }),
    holder: randomUUID(),
    log,
  })
  const reanchorer = createReanchorer({
    reanchors: createReanchorsStore(database),
    nonces,
    chainId,
    sign: (nonce, taken) => signAnchorTransaction({ relayerKey, chainId, nonce, fees, ...taken }),
    onReanchor: followers.notify,
    log,
    now: Date.now,
  })
  const blocks = createAnchorBlocksStore(database)
  const proofs = createBlockProofs({
    blocks,
    fetchBlock: (hash, signal) => fetchBlock(rpc, hash, signal),
  })
  const keeper = createBlockKeeper({ blocks, proofs, chainId, isBusy: createBusyCheck(), log })
  for (const part of [followers, reanchorer, keeper]) part.start()
  const balanceOf = async (of: string) => [of, await fetchBalance(rpc, of)] as const
  return {
    domain: { chainId, contract },
    relayer,
    nonces,
    sign: (nonce, head, of = contract) =>
      signAnchorTransaction({ relayerKey, chainId, contract: of, nonce, head, fees }),
    notify: () => followers.notify(),
    status: () => followers.status(),
    fetchRecentBlock: createRecentBlocks({ rpc, contract, confirmations }),
    evidence: { anchors: blocks, proofs, chainId },
    unreadableBlocks: proofs.unreadable,
    operations: createRelayerOperations({ relayers, rpc, chainId, current: address }),
    figures: {
      lag: createAnchorLag(relayers, chainId),
      reanchored: () => reanchorer.count(),
      balances: async () => new Map(await Promise.all(followers.relayers().map(balanceOf))),
    },
    stop: async () => {
      await Promise.all([proofs.stop(), keeper.stop()])
      await reanchorer.stop()
      await followers.stop()
    },
  }
}

/** From this utilization of the event loop on, the reading of blocks waits. */
const BUSY_UTILIZATION_MIN = 0.8

/** Whether the event loop was busy since the last call. */
function createBusyCheck(): () => boolean {
  let before = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, before)
    before = now
    return utilization >= BUSY_UTILIZATION_MIN
  }
}
