import { randomUUID } from 'node:crypto'
import type { LogDomain } from '#attestation/tree-head.ts'
import type { SignedHead } from '#audit/known-heads.ts'
import type { Opening } from '../observability/logger.ts'
import type { Database } from '../storage/database.ts'
import { type AnchorBlocksStore, createAnchorBlocksStore } from './anchor-blocks-store.ts'
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
import { listRelayers, type RelayerDescription } from './relayer-acts.ts'
import { createRelayerFollowers, createRelayerTurn } from './relayer-followers.ts'
import { type NoncedRelayer, RelayerNonces } from './relayer-nonces.ts'
import {
  type AnchorLag,
  createAnchorLag,
  createNonceStore,
  createRelayersStore,
} from './relayers-store.ts'
import { type Fees, type RawAnchorTransaction, signAnchorTransaction } from './sign-anchor.ts'

/** All work on the chain, except storing the anchors of new commits. */
export type Anchoring = {
  readonly domain: LogDomain
  readonly relayer: NoncedRelayer
  /** All committers share these nonces. */
  readonly nonces: RelayerNonces
  /** `contract`: the contract for which the head was signed. Default: the configured contract. */
  sign(nonce: number, head: SignedHead, contract?: string): RawAnchorTransaction
  /** Call this after an anchor was stored, or when the chain is reachable again. Costs little. */
  notify(): void
  status(): BroadcasterStatus
  /**
   * A recent block with the configured confirmations, not older than the contract. Throws RpcError.
   */
  readonly fetchRecentBlock: (signal?: AbortSignal) => Promise<RecentBlock>
  readonly evidence: {
    readonly anchors: Pick<AnchorBlocksStore, 'findAnchor'>
    readonly proofs: Pick<BlockProofs, 'prove'>
    readonly chainId: number
  }
  readonly unreadableBlocks: BlockProofs['unreadable']
  readonly listRelayers: () => Promise<readonly RelayerDescription[]>
  readonly figures: {
    readonly lag: () => Promise<AnchorLag>
    /** Number of heads that were anchored again since the start. */
    readonly reanchored: () => number
    /** Balances of this gateway's relayer and of each relayer with unconfirmed anchors, in wei. */
    readonly balances: () => Promise<ReadonlyMap<string, bigint>>
  }
}

/** src/local/chain-state.ts removes stuck transactions, which must then be sent again soon. */
const LOCAL_REBROADCAST_MS = 2_000

/**
 * Brings the anchors of all relayers onto the chain, and stores block proofs. If an anchor can
 * never be mined, the current relayer makes a new anchor.
 */
export function openAnchoring(
  { confirmations, fees }: { readonly confirmations: number; readonly fees: Fees },
  {
    database,
    chain,
    log,
    onStarted,
  }: Opening & { readonly database: Database; readonly chain: Chain },
): Anchoring {
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
  onStarted(async () => {
    await Promise.all([proofs.stop(), keeper.stop()])
    await reanchorer.stop()
    await followers.stop()
  })
  const balanceOf = async (of: string) => [of, await fetchBalance(rpc, of)] as const
  return {
    domain: { chainId, contract },
    relayer,
    nonces,
    sign: (nonce, head, of = contract) =>
      signAnchorTransaction({ relayerKey, chainId, contract: of, nonce, head, fees }),
    notify: followers.notify,
    status: followers.status,
    fetchRecentBlock: createRecentBlocks({ rpc, contract, confirmations }),
    evidence: { anchors: blocks, proofs, chainId },
    unreadableBlocks: proofs.unreadable,
    listRelayers: () => listRelayers({ relayers, rpc, chainId, current: address }),
    figures: {
      lag: createAnchorLag(relayers, chainId),
      reanchored: () => reanchorer.count(),
      balances: async () => new Map(await Promise.all(followers.relayers().map(balanceOf))),
    },
  }
}

/** Blocks are not read while the event loop is at least this busy. */
const BUSY_UTILIZATION_MIN = 0.8

/** Returns a function that measures the time since its last call. */
function createBusyCheck(): () => boolean {
  let before = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, before)
    before = now
    return utilization >= BUSY_UTILIZATION_MIN
  }
}
