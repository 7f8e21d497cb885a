import type { Rpc } from '#client/rpc.ts'
import type { Anchor, AnchorsStore } from './anchors-store.ts'
import { fetchBlockHashes } from './chain-reads.ts'

/** Maximum number of rows in one read. */
export const PAGE_ROWS = 200

/** An anchor, and the block in which it was seen. */
export type PlacedAnchor = {
  readonly nonce: number
  readonly blockNumber: number
  readonly blockHash: string
}

/** Throws RpcError. */
export async function isOnChain(
  rpc: Rpc,
  anchor: PlacedAnchor,
  signal: AbortSignal,
): Promise<boolean> {
  const hashes = await fetchBlockHashes(rpc, [anchor.blockNumber], signal)
  return hashes.get(anchor.blockNumber) === anchor.blockHash
}

/** Returns the anchor with the highest nonce below `end` that is in a block. */
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
 * Returns the lowest nonce whose stored block is no longer in the chain. The block of `nonce` must
 * be gone. Searches backwards until a block is still in the chain: all earlier blocks are then in
 * the chain too. Throws RpcError.
 */
export async function findFork(
  options: { readonly rpc: Rpc; readonly anchors: AnchorsStore; readonly relayer: string },
  nonce: number,
  signal: AbortSignal,
): Promise<number> {
  let fork = nonce
  for (let upTo = nonce; upTo > 0; upTo -= PAGE_ROWS) {
    const placed = await listPlaced(options.anchors, options.relayer, upTo)
    const undone = await listUndone(options.rpc, placed, signal)
    fork = undone[0]?.nonce ?? fork
    if (undone.length < placed.length) return fork
  }
  return fork
}

/**
 * Returns the lowest nonce of these anchors whose stored block is not in the chain, or null. Throws
 * RpcError.
 */
export async function findUndone(
  rpc: Rpc,
  anchors: readonly Anchor[],
  signal: AbortSignal,
): Promise<number | null> {
  const [undone] = await listUndone(rpc, anchors.flatMap(placeOf), signal)
  return undone?.nonce ?? null
}

async function listUndone(
  rpc: Rpc,
  placed: readonly PlacedAnchor[],
  signal: AbortSignal,
): Promise<readonly PlacedAnchor[]> {
  const numbers = [...new Set(placed.map((anchor) => anchor.blockNumber))]
  const hashes = await fetchBlockHashes(rpc, numbers, signal)
  return placed.filter((anchor) => hashes.get(anchor.blockNumber) !== anchor.blockHash)
}

/** Returns anchors in ascending order. Reads only the PAGE_ROWS nonces below `end`. */
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
