import type { Rpc } from '../../client/rpc.ts'
import type { Anchor, AnchorsStore } from './anchors-store.ts'
import { fetchBlockHashes } from './chain-reads.ts'

/** Rows that are read at a time. */
export const PAGE_ROWS = 200

/** A stored anchor with the block it was seen in. */
export type PlacedAnchor = {
  readonly nonce: number
  readonly blockNumber: number
  readonly blockHash: string
}

/**
 * Whether the block an anchor was seen in is still the chain's block of that number. Throws
 * RpcError.
 */
export async function isOnChain(
  rpc: Rpc,
  anchor: PlacedAnchor,
  signal: AbortSignal,
): Promise<boolean> {
  const hashes = await fetchBlockHashes(rpc, [anchor.blockNumber], signal)
  return hashes.get(anchor.blockNumber) === anchor.blockHash
}

/**
 * The stored anchor with the highest nonce under `end` that was seen in a block; null when there is
 * none.
 */
export async function findNewestPlaced(
  anchors: AnchorsStore,
  relayer: string,
  end: number,
): Promise<PlacedAnchor | null> {
  for (let upTo = end; upTo > 0; upTo -= PAGE_ROWS) {
    const newest = (await listPlaced(anchors, relayer, upTo)).at(-1)
    if (newest !== undefined) return newest
  }
  return null
}

/**
 * Lowest nonce whose stored block is no longer the chain's, going back page by page from `nonce`,
 * which is known not to be. Blocks that were recorded on one chain are undone from some block on,
 * so the walk ends at the first that stands. Throws RpcError.
 */
export async function findFork(
  options: { readonly rpc: Rpc; readonly anchors: AnchorsStore; readonly relayer: string },
  nonce: number,
  signal: AbortSignal,
): Promise<number> {
  let fork = nonce
  for (let upTo = nonce; upTo > 0; upTo -= PAGE_ROWS) {
    const placed = await listPlaced(options.anchors, options.relayer, upTo)
    const numbers = [...new Set(placed.map((anchor) => anchor.blockNumber))]
    const hashes = await fetchBlockHashes(options.rpc, numbers, signal)
    const undone = placed.filter((anchor) => hashes.get(anchor.blockNumber) !== anchor.blockHash)
    fork = undone[0]?.nonce ?? fork
    if (undone.length < placed.length) return fork
  }
  return fork
}

/** The placed ones among the PAGE_ROWS anchors under `end`, ascending. */
async function listPlaced(
  anchors: AnchorsStore,
  relayer: string,
  end: number,
): Promise<readonly PlacedAnchor[]> {
  const from = Math.max(0, end - PAGE_ROWS)
  const rows = await anchors.listFrom(relayer, from, end - from)
  return rows.filter((anchor) => anchor.nonce < end).flatMap(placeOf)
}

function placeOf({ nonce, blockNumber, blockHash }: Anchor): readonly PlacedAnchor[] {
  return blockNumber === null || blockHash === null ? [] : [{ nonce, blockNumber, blockHash }]
}
