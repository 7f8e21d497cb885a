import type { RelayersStore } from './relayers-store.ts'

/** How far the chain is behind the database, all relayers together. */
export type AnchorLag = {
  /** Anchors that are not confirmed yet: in no block, or in one that is young. */
  readonly unconfirmed: number
  /** Unix seconds of the oldest of them; null for none. */
  readonly oldestAt: number | null
}

/** Gives what reads the lag of a chain. Throws the driver's error. */
export function createAnchorLag(
  relayers: Pick<RelayersStore, 'listBacklogs'>,
  chainId: number,
): () => Promise<AnchorLag> {
  return async () => {
    const backlogs = await relayers.listBacklogs(chainId)
    return {
      unconfirmed: backlogs.reduce((total, { unconfirmed }) => total + unconfirmed, 0),
      oldestAt: backlogs.length === 0 ? null : Math.min(...backlogs.map(({ oldestAt }) => oldestAt)),
    }
  }
}
