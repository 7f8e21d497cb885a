import { type RawBuilder, sql } from 'kysely'
import { concatBytes, decodeHex, equalBytes } from '#attestation/bytes.ts'
import { type Edge, type LogNode, rootOf } from '#attestation/merkle/edge.ts'
import { edgeNodes } from '#attestation/merkle/proof-nodes.ts'
import type { LogDomain } from '#attestation/tree-head.ts'
import type { SignedHead } from '#audit/known-heads.ts'
import {
  CommitRaceLost,
  createNonceStore,
  isRaceLost,
  type NewAnchor,
  type NonceStore,
  takeNonce,
} from '../../chain/relayers-store.ts'
import { clockSeconds } from '../../storage/clock.ts'
import type { ContentCipher } from '../../storage/content-cipher.ts'
import type { Database } from '../../storage/database.ts'
import { NOTICE_CHANNEL } from '../../storage/postgres-session.ts'
import { PREPARED } from '../../storage/prepared.ts'
import { readNodes } from '../log-nodes-store.ts'
import { recordIdentity } from '../records/record-content.ts'
import type { StoredRecord } from '../records/records-store.ts'

/**
 * The stored data of a log contradicts itself. The operator must repair the database before the log
 * grows.
 */
export class LogCorrupt extends Error {
  override readonly name = 'LogCorrupt'
}

export type LogState = {
  /** Key of the log in this database. */
  readonly logId: number
  /** `edge.size` is the number of stored leaves. */
  readonly edge: Edge
}

/** Strings have the forms of StoredRecord. `document`: digest of the attestation document. */
export type NewRecord = Pick<
  StoredRecord,
  | 'id'
  | 'index'
  | 'hash'
  | 'request'
  | 'response'
  | 'receipt'
  | 'usage'
  | 'signature'
  | 'accountId'
  | 'requestId'
  | 'createdAt'
  | 'outcome'
> & {
  readonly document: string
  /** uuid of the call if it has an Idempotency-Key. */
  readonly callId?: string | null
}

/** Has at least one record. Indexes run from `before.size` to `head.size` - 1, in order. */
export type Commit = {
  readonly logId: number
  /** The edge of the log before this commit. */
  readonly before: Edge
  readonly head: SignedHead
  /** All perfect subtrees that the new leaves complete, including the leaves. */
  readonly nodes: readonly LogNode[]
  /** Null if the head waits for the anchor of its interval (unanchored-store.ts). */
  readonly anchor: CommitAnchor | null
  /** By digest (hex). Some may be stored already. */
  readonly documents: ReadonlyMap<string, Uint8Array>
  readonly records: readonly NewRecord[]
  /** Unix seconds. */
  readonly committedAt: number
}

export type CommitAnchor = NewAnchor & {
  /** Published to the other gateways when the commit is durable. Null publishes nothing. */
  readonly notice: string | null
}

/** Facts that are stored with a new log. They never change. */
type LogOpening = {
  readonly notary: string
  readonly publicKey: string
  /** The log's heads are signed for this domain. The gateway may use another domain later. */
  readonly domain: LogDomain
  /** Canonical JSON. The enclave's attestation documents have its digest. */
  readonly bootConfiguration: string
  /** Unix seconds. */
  readonly createdAt: number
}

/** Every method throws the driver's error. */
export type CommitsStore = NonceStore & {
  /**
   * Finds the notary's log, or creates an empty one. Throws LogCorrupt when the stored nodes do not
   * match the root.
   */
  openLog(log: LogOpening): Promise<LogState>
  /**
   * Stores the whole commit or nothing. Throws CommitRaceLost when the log is no longer at
   * `before`, or the relayer no longer at `nonce`. After any other error, openLog shows whether the
   * commit is stored.
   */
  commit(commit: Commit): Promise<void>
  /** Counts stored leaves. Null for an unknown log. */
  sizeOf(notary: string): Promise<number | null>
}

/**
 * Uses the database connections for commits. If there are keys for content, requests and answers
 * are stored encrypted.
 */
export function createCommitsStore({
  commits: queries,
  content,
}: Pick<Database, 'commits' | 'content'>): CommitsStore {
  return {
    ...createNonceStore({ commits: queries }),
    async openLog({ notary, publicKey, domain, bootConfiguration, createdAt }) {
      const key = decodeHex(publicKey)
      await sql`
        insert into logs (notary, public_key, size, root, chain_id, contract, boot_configuration, created_at)
        values (${notary}, ${key}, 0, ${rootOf({ size: 0, hashes: [] })}, ${domain.chainId},
          ${domain.contract}, ${bootConfiguration}, ${createdAt})
        on conflict (notary) do nothing`.execute(queries)
      const log = await queries
        .selectFrom('logs')
        .select(['id', 'size', 'root'])
        .where('notary', '=', notary)
        .executeTakeFirstOrThrow()
      const coordinates = edgeNodes(log.size)
      const hashAt = await readNodes(
        queries,
        coordinates.map((coordinate) => ({ ...coordinate, logId: log.id })),
      )
      const hashes = coordinates.map((coordinate) => hashAt({ ...coordinate, logId: log.id }))
      const edge = { size: log.size, hashes }
      if (!equalBytes(rootOf(edge), log.root))
        throw new LogCorrupt(
          `expected the stored nodes of log ${notary} to add up to its root, size ${log.size}`,
        )
      return { logId: log.id, edge }
    },
    async sizeOf(notary) {
      const log = await queries
        .selectFrom('logs')
        .select('size')
        .where('notary', '=', notary)
        .executeTakeFirst()
      return log?.size ?? null
    },
    async commit(commit) {
      try {
        await commitStatement(commit, content).execute(queries)
      } catch (error) {
        throw isRaceLost(error)
          ? new CommitRaceLost('the log or the nonce was taken by another commit')
          : error
      }
    },
  }
}

/**
 * Advisory lock of the transaction. Commits of different logs and relayers share no row, so without
 * this lock a record could appear below records that a reader has already read. Only commits take
 * it, and before all other locks, so it causes no deadlock.
 */
const COMMIT_LOCK = 7_100_318

const HAS_TURN = sql`exists (select from turn)`

/**
 * One statement stores the whole commit. If the nonce is used, `payer` is empty; if the log has
 * changed, `grown` is empty. In both cases log_id is null, its NOT NULL constraint fails, and
 * nothing is stored. Until the commit is durable, COMMIT_LOCK and the rows of the relayer and the
 * log stay locked. So commits run one after another, and records get positions in that order.
 */
function commitStatement(commit: Commit, content: ContentCipher | null) {
  const { anchor, nodes, documents, records, committedAt } = commit
  return sql`${PREPARED}
    with turn as materialized (select pg_advisory_xact_lock(${COMMIT_LOCK})),
    ${anchor === null ? growUnpaid(commit) : growPaid(commit, anchor)}, hashed as (
      insert into log_nodes (log_id, level, index, hash)
      select (select id from grown), node.level, node.index,
        substring(${concatBytes(...nodes.map((node) => node.hash))}::bytea
          from (node.ordinal::integer - 1) * 32 + 1 for 32)
      from unnest(${nodes.map((node) => node.level)}::integer[], ${nodes.map((node) => node.index)}::bigint[])
        with ordinality as node(level, index, ordinal)
    ) ${documents.size === 0 ? sql`` : storeDocuments(documents, committedAt)}
    insert into records (
      id, log_id, index, account_id, request_id, hash, request, response, receipt, signature, document_digest,
      relayer, nonce, outcome, created_at, call_id, usage, content)
    select r.id, (select id from grown), r.index, r.account_id, r.request_id, decode(r.hash, 'hex'),
      r.request, r.response, r.receipt, decode(r.signature, 'hex'), decode(r.document, 'hex'),
      ${anchor?.relayer ?? null}::text, ${anchor?.nonce ?? null}::bigint,
      r.outcome, r.created_at, r.call_id, r.usage, decode(r.content, 'base64')
    from json_to_recordset(${describeRecords(records, content)}::text::json) as r(
      id uuid, index bigint, account_id uuid, request_id text, hash text, request text,
      response text, receipt text,
      signature text, document text, outcome text, created_at bigint, call_id uuid, usage text,
      content text)
    order by r.index`
}

/** Grows the log and stores an anchor, which also covers earlier commits that wait for one. */
function growPaid(
  { logId, before, head, committedAt }: Commit,
  { relayer, nonce, hash, raw, notice }: CommitAnchor,
): RawBuilder<unknown> {
  return sql`${takeNonce(relayer, nonce, HAS_TURN)}, grown as (
      update logs set size = ${head.size}, root = ${head.root}
      where id = ${logId} and size = ${before.size} and exists (select from payer)
      returning id ${andNotify(notice)}
    ), anchored as (
      insert into anchors (relayer, nonce, tx_hash, raw, log_id, size, root, signature, state, created_at)
      values (
        (select address from payer), ${nonce}, ${decodeHex(hash)}, ${decodeHex(raw)},
        (select id from grown), ${head.size}, ${head.root}, ${head.signature}, 'pending', ${committedAt})
    ), waited as (
      delete from unanchored_heads where log_id = (select id from grown)
    )`
}

/**
 * The database sends the notice when the transaction is durable. pg_notify must be in RETURNING,
 * because an expression that is not read does not run.
 */
export function andNotify(notice: string | null): RawBuilder<unknown> {
  return notice === null ? sql`` : sql`, pg_notify(${NOTICE_CHANNEL}, ${notice})`
}

function growUnpaid({ logId, before, head }: Commit): RawBuilder<unknown> {
  return sql`grown as (
      update logs set size = ${head.size}, root = ${head.root}
      where id = ${logId} and size = ${before.size} and ${HAS_TURN} returning id
    ), waiting as (
      insert into unanchored_heads (log_id, first_index, anchored_root, size, root, signature, since)
      values ((select id from grown), ${before.size}, ${rootOf(before)}, ${head.size}, ${head.root},
        ${head.signature}, ${clockSeconds(null)})
      on conflict (log_id) do update
        set size = excluded.size, root = excluded.root, signature = excluded.signature
    )`
}

function storeDocuments(
  documents: ReadonlyMap<string, Uint8Array>,
  seenAt: number,
): RawBuilder<unknown> {
  const rows = [...documents].map(
    ([digest, document]) => sql`(${decodeHex(digest)}, ${document}, ${seenAt}::bigint)`,
  )
  return sql`, seen as (
      insert into attestation_documents (digest, document, first_seen_at) values ${sql.join(rows)}
      on conflict (digest) do nothing
    )`
}

function describeRecords(records: readonly NewRecord[], content: ContentCipher | null): string {
  return JSON.stringify(
    records.map((record) => ({ ...describeRecord(record), ...describeContent(record, content) })),
  )
}

function describeContent(record: NewRecord, content: ContentCipher | null) {
  const { request, response } = record
  if (content === null || request === null || response === null) return { request, response }
  const sealed = content.seal([request, response], recordIdentity(record))
  return { content: Buffer.from(sealed).toString('base64') }
}

function describeRecord(record: NewRecord) {
  return {
    id: record.id,
    index: record.index,
    account_id: record.accountId,
    request_id: record.requestId,
    hash: record.hash,
    receipt: record.receipt,
    signature: record.signature.slice('0x'.length),
    document: record.document,
    outcome: record.outcome,
    created_at: record.createdAt,
    call_id: record.callId ?? null,
    usage: record.usage === null ? null : JSON.stringify(record.usage),
  }
}
