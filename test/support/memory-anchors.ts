import type { Anchor, AnchorState, AnchorsStore, MinedAnchor } from '#src/chain/anchors-store.ts'

/**
 * An AnchorsStore in memory, for one relayer or several, that keeps all promises of the interface.
 */
export type MemoryAnchors = AnchorsStore & {
  /** Stores signed transactions as pending, as a commit does. */
  add(rows: readonly Pick<Anchor, 'relayer' | 'nonce' | 'txHash' | 'raw'>[]): void
  all(): readonly (Anchor & { readonly gasUsed: number | null })[]
  count(state: AnchorState): number
  /** Makes the next calls of the store fail, like a database that is away. */
  failFor(calls: number): void
}

export function createMemoryAnchors(): MemoryAnchors {
  let rows: readonly (Anchor & { readonly gasUsed: number | null })[] = []
  let failures = 0

  function of(relayer: string): readonly Anchor[] {
    if (failures > 0) {
      failures -= 1
      throw new Error('the database is away')
    }
    return rows.filter((row) => row.relayer === relayer)
  }

  function change(
    relayer: string,
    update: (row: Anchor) => Partial<Anchor & { gasUsed: number | null }>,
  ): void {
    of(relayer)
    rows = rows.map((row) => (row.relayer === relayer ? { ...row, ...update(row) } : row))
  }

  return {
    add: (added) => {
      const fresh = { state: 'pending', blockNumber: null, blockHash: null, gasUsed: null } as const
      rows = [...rows, ...added.map((row) => ({ ...row, ...fresh }))].sort(
        (a, b) => a.nonce - b.nonce,
      )
    },
    all: () => rows,
    count: (state) => rows.filter((row) => row.state === state).length,
    failFor: (calls) => {
      failures = calls
    },
    listFrom: async (relayer, nonce, limit) =>
      of(relayer)
        .filter((row) => row.nonce >= nonce)
        .slice(0, limit),
    lowestUnsettled: async (relayer) =>
      of(relayer).find((row) => row.state === 'pending' || row.state === 'mined')?.nonce ?? null,
    highestNonce: async (relayer) => of(relayer).at(-1)?.nonce ?? null,
    markMined: async (relayer, mined) => {
      const byNonce = new Map(mined.map((row) => [row.nonce, row]))
      change(relayer, (row) => minedState(byNonce.get(row.nonce)))
    },
    markTaken: async (relayer, nonces) =>
      change(relayer, (row) =>
        nonces.includes(row.nonce) && row.state === 'pending' ? { state: 'taken' } : {},
      ),
    markConfirmed: async (relayer, throughNonce) =>
      change(relayer, (row) =>
        row.state === 'mined' && row.nonce <= throughNonce ? { state: 'confirmed' } : {},
      ),
    markLost: async (relayer, fromNonce) =>
      change(relayer, (row) =>
        row.nonce >= fromNonce
          ? { state: 'pending', blockNumber: null, blockHash: null, gasUsed: null }
          : {},
      ),
  }
}

function minedState(mined: MinedAnchor | undefined): Partial<Anchor & { gasUsed: number }> {
  if (mined === undefined) return {}
  const { blockNumber, blockHash, gasUsed } = mined
  return { state: mined.succeeded ? 'mined' : 'reverted', blockNumber, blockHash, gasUsed }
}
