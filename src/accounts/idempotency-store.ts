import { sql } from 'kysely'
import { clockSeconds, type StoreClock } from '../storage/clock.ts'
import { type ContentIdentity, openContent } from '../storage/content-cipher.ts'
import type { Database } from '../storage/database.ts'

export type KeyedCall = {
  readonly accountId: string
  readonly key: string
  /** New for each try. The record of a verified completion contains this id. */
  readonly callId: string
  /** SHA-256 of the request. */
  readonly requestHash: Uint8Array
  /** The gateway that makes the call. */
  readonly processId: string
  /** The notary of the enclave that makes the completion. Null for calls that leave no record. */
  readonly notary: string | null
}

/** The first call with this key. */
export type KnownCall = Pick<KeyedCall, 'callId' | 'requestHash' | 'processId' | 'notary'> & {
  /** Only for a call that leaves no record. */
  readonly answer: string | null
  /** True if the gateway is alive and still runs the call. */
  readonly isRunning: boolean
  /** Seconds since the gateway gave up the call. Null if the call is not given up. */
  readonly abandonedForSeconds: number | null
}

/**
 * Methods throw the driver's error when the database fails. With keys for content, answers are
 * stored encrypted, and `claim` throws ContentUnavailable for an answer that it cannot decrypt.
 */
export type IdempotencyStore = {
  /**
   * Claims the key for `retentionSeconds`. Returns the earlier call if the key is already claimed.
   */
  claim(call: KeyedCall, retentionSeconds: number): Promise<'claimed' | KnownCall>
  /**
   * Claims the key for another try, unless another call does so first. Keeps the retention time.
   */
  takeOver(call: KeyedCall, from: string): Promise<boolean>
  /** Records that `processId` runs these calls, except calls that are given up. */
  adopt(calls: readonly CallName[], processId: string): Promise<void>
  /** Gives the call up instead if the account's content was erased while the call ran. */
  keep(call: CallName, answer: string): Promise<void>
  /** Records that no caller waits for the call, and that its outcome is unknown. */
  abandon(call: CallName): Promise<void>
  /** Deletes the claim of a call that produced nothing. */
  release(call: CallName): Promise<void>
  /** Removes expired keys. Returns their number. */
  purge(): Promise<number>
}

export type CallName = Pick<KeyedCall, 'accountId' | 'key' | 'callId'>

/** Maximum number of rows in one delete. A longer delete would delay other statements. */
const PURGE_MAX = 1_000

/** Number of tries. Between two tries, another call can claim and release the key. */
const CLAIM_ROUNDS = 3

/** When `claim` resolves, its result is durable. */
export function createIdempotencyStore(
  { queries, content }: Pick<Database, 'queries' | 'content'>,
  clock: StoreClock = null,
): IdempotencyStore {
  const isCall = ({ accountId, key, callId }: CallName) =>
    sql`account_id = ${accountId} and key = ${key} and call_id = ${callId}`

  async function insert(call: KeyedCall, retentionSeconds: number): Promise<boolean> {
    const now = clockSeconds(clock)
    const { rows } = await sql`
      insert into idempotency_keys as known
        (account_id, key, call_id, request_hash, process_id, notary, created_at, expires_at)
      values (${call.accountId}, ${call.key}, ${call.callId}, ${call.requestHash}, ${call.processId}, ${call.notary},
        ${now}, ${now} + ${retentionSeconds})
      on conflict (account_id, key) do update set
        call_id = excluded.call_id, request_hash = excluded.request_hash, process_id = excluded.process_id,
        notary = excluded.notary, answer = null, sealed_answer = null, abandoned_at = null, created_at = excluded.created_at,
        expires_at = excluded.expires_at
        where known.expires_at <= ${now}
      returning call_id`.execute(queries)
    return rows.length === 1
  }

  async function find({ accountId, key }: KeyedCall): Promise<KnownCall | null> {
    const { rows } = await sql<KnownRow>`
      select k.call_id, k.request_hash, k.process_id, k.notary, k.answer, k.sealed_answer,
        ${clockSeconds(clock)} - k.abandoned_at as abandoned_for,
        k.abandoned_at is null and coalesce(p.expires_at > ${clockSeconds(clock)}, false) as is_running
      from idempotency_keys k left join gateway_processes p on p.id = k.process_id
      where k.account_id = ${accountId} and k.key = ${key}`.execute(queries)
    const [row] = rows
    if (row === undefined) return null
    const name = { accountId, key, callId: row.call_id }
    return { ...toKnown(row), answer: row.answer ?? openAnswer(row.sealed_answer, name) }
  }

  function openAnswer(sealed: Uint8Array | null, name: CallName): string | null {
    return sealed === null ? null : (openContent(content, sealed, answerIdentity(name))[0] ?? null)
  }

  async function abandon(call: CallName): Promise<void> {
    await sql`
      update idempotency_keys set abandoned_at = ${clockSeconds(clock)} where ${isCall(call)}`.execute(
      queries,
    )
  }

  return {
    async claim(call, retentionSeconds) {
      for (let round = 0; round < CLAIM_ROUNDS; round++) {
        if (await insert(call, retentionSeconds)) return 'claimed'
        const known = await find(call)
        if (known !== null) return known
      }
      throw new Error('expected a key that is claimed or free')
    },
    async takeOver(call, from) {
      const { numAffectedRows } = await sql`
        update idempotency_keys set
          call_id = ${call.callId}, request_hash = ${call.requestHash}, process_id = ${call.processId},
          notary = ${call.notary}, abandoned_at = null, created_at = ${clockSeconds(clock)}
        where ${isCall({ ...call, callId: from })} and answer is null and sealed_answer is null`.execute(
        queries,
      )
      return numAffectedRows === 1n
    },
    async adopt(calls, processId) {
      await sql`
        update idempotency_keys k set process_id = ${processId}
        from unnest(${calls.map(({ accountId }) => accountId)}::uuid[], ${calls.map(({ key }) => key)}::text[],
          ${calls.map(({ callId }) => callId)}::uuid[]) as c(account_id, key, call_id)
        where k.account_id = c.account_id and k.key = c.key and k.call_id = c.call_id
          and k.abandoned_at is null`.execute(queries)
    },
    async keep(call, answer) {
      const sealed = content?.seal([answer], answerIdentity(call)) ?? null
      const { numAffectedRows } = await sql`
        update idempotency_keys k
        set answer = ${sealed === null ? answer : null}, sealed_answer = ${sealed}
        where ${isCall(call)} and not exists (
          select from accounts a where a.id = k.account_id and a.erased_through >= k.created_at)`.execute(
        queries,
      )
      if (numAffectedRows !== 1n) await abandon(call)
    },
    abandon,
    async release(call) {
      await sql`delete from idempotency_keys where ${isCall(call)}`.execute(queries)
    },
    async purge() {
      const { numAffectedRows } = await sql`
        delete from idempotency_keys where (account_id, key) in (
          select account_id, key from idempotency_keys where expires_at <= ${clockSeconds(clock)}
          order by expires_at limit ${PURGE_MAX} for update skip locked)`.execute(queries)
      return Number(numAffectedRows ?? 0n)
    },
  }
}

/** Returns the identity under which an answer is encrypted. */
export function answerIdentity({ accountId, key, callId }: CallName): ContentIdentity {
  return ['idempotency_keys', accountId, key, callId]
}

type KnownRow = {
  readonly call_id: string
  readonly request_hash: Uint8Array
  readonly process_id: string
  readonly notary: string | null
  readonly answer: string | null
  readonly sealed_answer: Uint8Array | null
  readonly abandoned_for: number | null
  readonly is_running: boolean
}

function toKnown(row: KnownRow): Omit<KnownCall, 'answer'> {
  return {
    callId: row.call_id,
    requestHash: row.request_hash,
    processId: row.process_id,
    notary: row.notary,
    isRunning: row.is_running,
    abandonedForSeconds: row.abandoned_for,
  }
}
