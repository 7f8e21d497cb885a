import { sql } from 'kysely'
import { decodeHex } from '#attestation/bytes.ts'
import type { SignedHead } from '#audit/known-heads.ts'
import type { Database } from '../storage/database.ts'
import { hasSuccessor } from './anchors-store.ts'
import { CommitRaceLost, isRaceLost, type NewAnchor, takeNonce } from './relayers-store.ts'

/** Another transaction used this anchor's nonce. The anchor has no replacement yet. */
export type TakenAnchor = {
  readonly relayer: string
  readonly nonce: number
  /** The head is signed for this contract. 0x, lower case. */
  readonly contract: string
  readonly head: SignedHead
}

/** A new anchor for the head of a taken anchor. */
type Replacement = NewAnchor & {
  /** Unix seconds. */
  readonly createdAt: number
}

/** Every method throws the driver's error. */
export type ReanchorsStore = {
  /** Anchors of logs for this chain, oldest first. */
  listTaken(chainId: number, limit: number): Promise<readonly TakenAnchor[]>
  /**
   * Throws CommitRaceLost if another gateway used the nonce or replaced the anchor. After any other
   * error, `listTaken` shows whether the replacement is stored.
   */
  replace(taken: Pick<TakenAnchor, 'relayer' | 'nonce'>, replacement: Replacement): Promise<void>
}

/** Uses the connections for commits. */
export function createReanchorsStore({
  commits: queries,
}: Pick<Database, 'commits'>): ReanchorsStore {
  return {
    async listTaken(chainId, limit) {
      const { rows } = await sql<TakenRow>`
        select a.relayer, a.nonce, l.contract, a.size, a.root, a.signature
        from anchors a join logs l on l.id = a.log_id
        where a.state = 'taken' and l.chain_id = ${chainId} and not ${hasSuccessor('a')}
        order by a.created_at, a.relayer, a.nonce limit ${limit}`.execute(queries)
      return rows.map(({ relayer, nonce, contract, size, root, signature }) => ({
        relayer,
        nonce,
        contract,
        head: { size, root, signature },
      }))
    },
    async replace(taken, { relayer, nonce, raw, hash, createdAt }) {
      try {
        await sql`
          with ${takeNonce(relayer, nonce)}
          insert into anchors (
            relayer, nonce, tx_hash, raw, log_id, size, root, signature, state, created_at,
            origin_relayer, origin_nonce, attempt)
          select (select address from payer), ${nonce}, ${decodeHex(hash)}, ${decodeHex(raw)},
            a.log_id, a.size, a.root, a.signature, 'pending', ${createdAt}, coalesce(a.origin_relayer, a.relayer),
            coalesce(a.origin_nonce, a.nonce), a.attempt + 1
          from anchors a where a.relayer = ${taken.relayer} and a.nonce = ${taken.nonce}`.execute(
          queries,
        )
      } catch (error) {
        throw isRaceLost(error) || isReplacedAlready(error)
          ? new CommitRaceLost('the anchor was replaced, or the nonce taken, by another gateway')
          : error
      }
    },
  }
}

type TakenRow = {
  readonly relayer: string
  readonly nonce: number
  readonly contract: string
  readonly size: number
  readonly root: Uint8Array
  readonly signature: Uint8Array
}

const UNIQUE_VIOLATION = '23505'

/** A unique index refuses a second replacement. */
function isReplacedAlready(error: unknown): boolean {
  if (!(error instanceof Error) || !('code' in error) || !('constraint' in error)) return false
  return error.code === UNIQUE_VIOLATION && error.constraint === 'anchors_again'
}
