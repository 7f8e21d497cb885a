import { sql } from 'kysely'
import { clockSeconds, type StoreClock } from '../storage/clock.ts'
import type { Database } from '../storage/database.ts'
import { hasSuccessor } from './anchor-sequence-store.ts'

/** What a relayer still has to bring onto the chain. */
export type RelayerBacklog = {
  /** Address, 0x, lower case. */
  readonly relayer: string
  /**
   * Anchors that are in no block, those included whose nonce was taken and that are not anchored
   * again yet.
   */
  readonly waiting: number
  /** Those, and the ones in a block that is young. */
  readonly unconfirmed: number
  /** Unix seconds of the oldest of them. */
  readonly oldestAt: number
}

/** A relayer as the database knows it. */
type StoredRelayer = {
  /** Address, 0x, lower case. */
  readonly address: string
  /** Nonce of its next anchor. */
  readonly nextNonce: number
}

/**
 * The accounts that pay or paid for anchors, and who follows them. Every method throws the driver's
 * error.
 */
export type RelayersStore = {
  /** All of them, by address. */
  list(): Promise<readonly StoredRelayer[]>
  /** Those with anchors of logs for this chain that are not confirmed. */
  listBacklogs(chainId: number): Promise<readonly RelayerBacklog[]>
  /**
   * Takes or renews the right to follow a relayer, for so many seconds. False while somebody else
   * has it, unless `force`: a gateway follows its own relayer in any case.
   */
  lease(lease: {
    readonly relayer: string
    readonly holder: string
    readonly seconds: number
    readonly force?: boolean
  }): Promise<boolean>
  /** Gives all leases of this holder back. */
  release(holder: string): Promise<void>
}

/** Relayers on the database's shared connections. */
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
      // No join with logs: without statistics that is begun from there, and reads every anchor (see
      // log-nodes-store.ts).
      const { rows } = await sql<BacklogRow>`
        select relayer, count(*) filter (where state <> 'mined') as waiting, count(*) as unconfirmed,
          min(created_at) as oldest_at
        from (
          select relayer, state, created_at, log_id from anchors where state in ('pending', 'mined')
          union all
          select relayer, state, created_at, log_id from anchors a where state = 'taken' and not ${hasSuccessor('a')}
        ) a
        where (select chain_id from logs where id = a.log_id) = ${chainId}
        group by relayer order by relayer`.execute(queries)
      return rows.map((row) => ({
        relayer: row.relayer,
        waiting: Number(row.waiting),
        unconfirmed: Number(row.unconfirmed),
        oldestAt: Number(row.oldest_at),
      }))
    },
    async lease({ relayer, holder, seconds, force = false }) {
      const { numAffectedRows } = await sql`
        update relayers set follower = ${holder}, followed_until = ${clockSeconds(clock)} + ${seconds}
        where address = ${relayer}
          and (${force} or follower = ${holder} or followed_until <= ${clockSeconds(clock)})`.execute(queries)
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
  readonly waiting: number
  readonly unconfirmed: number
  readonly oldest_at: number
}
