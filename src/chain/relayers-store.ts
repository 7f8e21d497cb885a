import { type RawBuilder, sql } from 'kysely'
import { clockSeconds, type StoreClock } from '../storage/clock.ts'
import type { Database } from '../storage/database.ts'
import { hasSuccessor } from './anchors-store.ts'
import type { RawAnchorTransaction } from './sign-anchor.ts'

export type RelayerBacklog = {
  /** Address, 0x, lower case. */
  readonly relayer: string
  /** Number of pending anchors. Taken anchors count until they are replaced. */
  readonly pending: number
  /** Number of anchors without enough confirmations. Pending anchors count too. */
  readonly unconfirmed: number
  /** When the oldest unconfirmed anchor was made, Unix seconds. */
  readonly oldestAt: number
}

type StoredRelayer = {
  /** Address, 0x, lower case. */
  readonly address: string
  readonly nextNonce: number
}

/** Relayers pay, or once paid, for anchors. Every method throws the driver's error. */
export type RelayersStore = {
  list(): Promise<readonly StoredRelayer[]>
  /** Lists the relayers that have unconfirmed anchors for this chain. */
  listBacklogs(chainId: number): Promise<readonly RelayerBacklog[]>
  /**
   * Takes or renews the right to follow a relayer. Returns false while another holder has the
   * right. `force` takes the right from any holder: a gateway uses `force` for its own relayer.
   */
  lease(lease: {
    readonly relayer: string
    readonly holder: string
    readonly seconds: number
    readonly force?: boolean
  }): Promise<boolean>
  release(holder: string): Promise<void>
}

export function createRelayersStore(
  { queries }: Pick<Database, 'queries'>,
  clock: StoreClock = null,
): RelayersStore {
  return {
    async list() {
      const rows = await queries
        .selectFrom('relayers')
        .select(['address', 'next_nonce'])
        .orderBy('address')
        .execute()
      return rows.map((row) => ({ address: row.address, nextNonce: row.next_nonce }))
    },
    async listBacklogs(chainId) {
      // A join with logs would be slow in an embedded database, which has no statistics: the
      // planner would start at logs and read every anchor.
      const { rows } = await sql<BacklogRow>`
        select relayer, count(*) filter (where state <> 'mined') as pending, count(*) as unconfirmed,
          min(created_at) as oldest_at
        from (
          select relayer, state, created_at, log_id from anchors where state in ('pending', 'mined')
          union all
          select relayer, state, created_at, log_id from anchors a
          where state = 'taken' and not ${hasSuccessor('a')}
        ) a
        where (select chain_id from logs where id = a.log_id) = ${chainId}
        group by relayer order by relayer`.execute(queries)
      return rows.map((row) => ({
        relayer: row.relayer,
        pending: Number(row.pending),
        unconfirmed: Number(row.unconfirmed),
        oldestAt: Number(row.oldest_at),
      }))
    },
    async lease({ relayer, holder, seconds, force = false }) {
      const { numAffectedRows } = await sql`
        update relayers set follower = ${holder}, followed_until = ${clockSeconds(clock)} + ${seconds}
        where address = ${relayer}
          and (${force} or follower = ${holder} or followed_until <= ${clockSeconds(clock)})`.execute(
        queries,
      )
      return numAffectedRows === 1n
    },
    async release(holder) {
      await sql`update relayers set follower = null, followed_until = 0 where follower = ${holder}`.execute(
        queries,
      )
    },
  }
}

type BacklogRow = {
  readonly relayer: string
  readonly pending: number
  readonly unconfirmed: number
  readonly oldest_at: number
}

export type AnchorLag = {
  /** Number of anchors in no block, or in a block without enough confirmations. */
  readonly unconfirmed: number
  /** When the oldest unconfirmed anchor was made, Unix seconds. Null without such an anchor. */
  readonly oldestAt: number | null
}

export function createAnchorLag(
  relayers: Pick<RelayersStore, 'listBacklogs'>,
  chainId: number,
): () => Promise<AnchorLag> {
  return async () => {
    const backlogs = await relayers.listBacklogs(chainId)
    return {
      unconfirmed: backlogs.reduce((total, { unconfirmed }) => total + unconfirmed, 0),
      oldestAt:
        backlogs.length === 0 ? null : Math.min(...backlogs.map(({ oldestAt }) => oldestAt)),
    }
  }
}

/**
 * Another gateway changed the log or took the nonce first. Nothing was stored: read the state again
 * and retry.
 */
export class CommitRaceLost extends Error {
  override readonly name = 'CommitRaceLost'
}

/** The database's count of nonces. Every method throws the driver's error. */
export type NonceStore = {
  /** Null before the first `raiseNonce`. */
  nextNonce(relayer: string): Promise<number | null>
  /** Adds the relayer if it is new. Its next nonce becomes at least `least`, and is returned. */
  raiseNonce(relayer: string, least: number): Promise<number>
}

/** Uses the connections for commits. */
export function createNonceStore({ commits: queries }: Pick<Database, 'commits'>): NonceStore {
  return {
    async nextNonce(relayer) {
      const row = await queries
        .selectFrom('relayers')
        .select('next_nonce')
        .where('address', '=', relayer)
        .executeTakeFirst()
      return row?.next_nonce ?? null
    },
    async raiseNonce(relayer, least) {
      const { rows } = await sql<{ next_nonce: number }>`
        insert into relayers (address, next_nonce) values (${relayer}, ${least})
        on conflict (address) do update set next_nonce = greatest(relayers.next_nonce, excluded.next_nonce)
        returning next_nonce`.execute(queries)
      return rows[0]?.next_nonce ?? least
    },
  }
}

/** A signed anchor that takes the relayer's next nonce. */
export type NewAnchor = RawAnchorTransaction & { readonly relayer: string; readonly nonce: number }

/**
 * Returns SQL that takes the nonce. Its table `payer` is empty if another anchor has the nonce.
 * `condition` is evaluated before the relayer's row is locked.
 */
export function takeNonce(
  relayer: string,
  nonce: number,
  condition: RawBuilder<unknown> = sql`true`,
): RawBuilder<unknown> {
  return sql`payer as (
    update relayers set next_nonce = next_nonce + 1
    where address = ${relayer} and next_nonce = ${nonce} and ${condition} returning address
  )`
}

const NOT_NULL_VIOLATION = '23502'

/**
 * Returns true if a commit failed because another commit was first. The statement of the later
 * commit finds no log or no relayer, and inserts null, which the database refuses.
 */
export function isRaceLost(error: unknown): boolean {
  if (!(error instanceof Error) || !('code' in error) || !('column' in error)) return false
  return (
    error.code === NOT_NULL_VIOLATION && (error.column === 'log_id' || error.column === 'relayer')
  )
}
