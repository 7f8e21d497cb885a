import { type RawBuilder, sql } from 'kysely'
import { decodeHex } from '#attestation/bytes.ts'
import type { LogDomain } from '#attestation/tree-head.ts'
import type { SignedHead } from '#audit/known-heads.ts'
import { CommitRaceLost, isRaceLost, takeNonce } from '../../chain/relayers-store.ts'
import { clockSeconds, type StoreClock } from '../../storage/clock.ts'
import type { Database } from '../../storage/database.ts'
import { andNotify, type CommitAnchor } from './commits-store.ts'

/** The newest head of a log whose last commits wait for an anchor. */
export type UnanchoredHead = SignedHead & {
  readonly logId: number
  readonly notary: string
  /** The head is signed for this chain and contract. */
  readonly domain: LogDomain
}

/** Every method throws the driver's error. */
export type UnanchoredStore = {
  /** Null when all commits of the log are anchored, and when the log is of another chain. */
  find(chainId: number, notary: string): Promise<UnanchoredHead | null>
  /** Heads whose oldest commit without an anchor is older than this many seconds. */
  listOlder(chainId: number, seconds: number): Promise<readonly UnanchoredHead[]>
  /**
   * Throws CommitRaceLost when the log has grown, another gateway anchored the head, or the relayer
   * is no longer at `nonce`. After any other error, `find` shows whether the anchor is stored.
   */
  anchor(
    head: SignedHead & Pick<UnanchoredHead, 'logId'>,
    /** `createdAt`: Unix seconds. */
    anchor: CommitAnchor & { readonly createdAt: number },
  ): Promise<void>
}

/** Uses the connections that are only for commits. */
export function createUnanchoredStore(
  { commits: queries }: Pick<Database, 'commits'>,
  clock: StoreClock = null,
): UnanchoredStore {
  async function read(where: RawBuilder<unknown>): Promise<readonly UnanchoredHead[]> {
    // A gateway of an earlier version does not delete this row when it anchors a later head.
    const { rows } = await sql<UnanchoredRow>`
      select u.log_id, l.notary, l.chain_id, l.contract, u.size, u.root, u.signature,
        exists (select from anchors a where a.log_id = u.log_id and a.size >= u.size) as is_anchored
      from unanchored_heads u join logs l on l.id = u.log_id where ${where} order by u.log_id`.execute(
      queries,
    )
    const stale = rows.filter((row) => row.is_anchored)
    for (const { log_id, size } of stale)
      await queries
        .deleteFrom('unanchored_heads')
        .where('log_id', '=', log_id)
        .where('size', '=', size)
        .execute()
    return rows.filter((row) => !row.is_anchored).map(toHead)
  }

  return {
    async find(chainId, notary) {
      return (await read(sql`l.chain_id = ${chainId} and l.notary = ${notary}`))[0] ?? null
    },
    listOlder: (chainId, seconds) =>
      read(sql`l.chain_id = ${chainId} and u.since <= ${clockSeconds(clock)} - ${seconds}`),
    async anchor({ logId, size, root, signature }, anchor) {
      const { relayer, nonce, raw, hash, createdAt, notice } = anchor
      try {
        await sql`
          with ${takeNonce(relayer, nonce)}, taken as (
            delete from unanchored_heads
            where log_id = ${logId} and size = ${size} and exists (select from payer)
            returning log_id ${andNotify(notice)}
          )
          insert into anchors (
            relayer, nonce, tx_hash, raw, log_id, size, root, signature, state, created_at)
          values (
            (select address from payer), ${nonce}, ${decodeHex(hash)}, ${decodeHex(raw)},
            (select log_id from taken), ${size}, ${root}, ${signature}, 'pending', ${createdAt})`.execute(
          queries,
        )
      } catch (error) {
        throw isRaceLost(error)
          ? new CommitRaceLost('the head was anchored, the log has grown, or the nonce was taken')
          : error
      }
    },
  }
}

type UnanchoredRow = {
  readonly log_id: number
  readonly notary: string
  readonly chain_id: number
  readonly contract: string
  readonly size: number
  readonly root: Uint8Array
  readonly signature: Uint8Array
  readonly is_anchored: boolean
}

function toHead({ log_id, notary, chain_id, contract, ...head }: UnanchoredRow): UnanchoredHead {
  const { size, root, signature } = head
  return { logId: log_id, notary, domain: { chainId: chain_id, contract }, size, root, signature }
}
