import { sql } from 'kysely'
import type { Database } from './database.ts'

/** How far the chain is behind the database, for one relayer. */
export type AnchorLag = {
  /** Anchors that are not confirmed yet: in no block, or in one that is young. */
  readonly unconfirmed: number
  /** Unix seconds of the oldest of them; null for none. */
  readonly oldestAt: number | null
}

/** Gives what reads the lag of `relayer`, 0x and lower case. Throws the driver's error. */
export function createAnchorLag(
  { queries }: Pick<Database, 'queries'>,
  relayer: string,
): () => Promise<AnchorLag> {
  return async () => {
    // Literals, so that the planner sees the partial index of just these.
    const row = await queries
      .selectFrom('anchors')
      .select((of) => [of.fn.countAll<number>().as('unconfirmed'), of.fn.min('created_at').as('oldestAt')])
      .where('relayer', '=', relayer)
      .where(sql<boolean>`state in ('pending', 'mined')`)
      .executeTakeFirstOrThrow()
    return { unconfirmed: Number(row.unconfirmed), oldestAt: row.oldestAt }
  }
}
