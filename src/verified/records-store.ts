import { type RawBuilder, type Selectable, sql } from 'kysely'
import { decodeHex, encodeBase64, encodeHex } from '../../attestation/bytes.ts'
import { buildProof, inclusionNodes } from '../../attestation/merkle/proof-nodes.ts'
import type { Receipt } from '../../attestation/receipt.ts'
import type { TokenUsage } from '../../enclave/protocol/messages.ts'
import { laterHashes, parseHashes } from '../chain/anchors-store.ts'
import { LruMap } from '../runtime/lru-map.ts'
import type { Database } from '../storage/database.ts'
import type { Queries, Tables } from '../storage/tables.ts'
import { type HashLookup, readNodes, type StoredNodeCoordinate } from './logs-store.ts'

/**
 * Where a record stands in its log: the signed head of the commit that stored it, and the way from
 * the leaf to it.
 */
type LogProof = {
  /** Leaves under the head. */
  readonly size: number
  /** Root of the head, hex. */
  readonly root: string
  /** Notary's EIP-712 signature of the head, 0x hex. */
  readonly signature: string
  /** Inclusion path of the record's leaf, hex, leaf's sibling first (RFC 9162, 2.1.3). */
  readonly path: readonly string[]
  /** What the head is signed for: the chain's id, and the contract's address (0x, lower case). */
  readonly chainId: number
  readonly contract: string
}

/**
 * A stored completion with all that proves it. Texts are the canonical bytes that were hashed.
 * Immutable.
 */
export type StoredRecord = {
  /** uuid; the cursor of history pages. */
  readonly id: string
  /** Signing account, 0x, lower case; the log's id. */
  readonly notary: string
  /** Index of the leaf in the notary's log. */
  readonly index: number
  /** Hash of the completion, 64 hex digits without prefix. */
  readonly hash: string
  /** Canonical JSON texts; those of request and response are null of an encrypted call. */
  readonly request: string | null
  readonly response: string | null
  readonly receipt: string
  /** Of an encrypted call: what its response states was used; else null. */
  readonly usage: TokenUsage | null
  /** 0x + 65 bytes, uncompressed point. */
  readonly publicKey: string
  /** 0x + 65 bytes r||s||v. */
  readonly signature: string
  /** Transaction that anchors the head of `logProof`, 0x + 32 bytes; never changes. */
  readonly txHash: string
  /**
   * Transactions that anchor it in its place, in order: those before the last could not be mined.
   * Empty but after a loss.
   */
  readonly reanchored: readonly string[]
  /** Attestation document, standard base64. */
  readonly attestation: string
  /** Who asked for it; null when the context did not say. */
  readonly accountId: string | null
  readonly requestId: string | null
  /** Unix seconds: when the enclave finished it. */
  readonly createdAt: number
  readonly outcome: Receipt['outcome']
  readonly logProof: LogProof
}

/**
 * One page of the history, newest first. `cursor` is the id of its last record, null when nothing
 * older is left.
 */
type RecordPage = { readonly records: readonly StoredRecord[]; readonly cursor: string | null }

/** Whose records a query may see: one account's, or everybody's (null). */
export type RecordScope = { readonly accountId: string | null }

/**
 * Reads of the history. A record is in it once its anchor is stored: one that is committed, and
 * waits for the anchor of its interval, is not there yet. Throws the driver's error when the
 * database fails.
 */
export type RecordsStore = {
  /** Gives the first record (lowest position) with this hash (hex, no prefix), or null. */
  findByHash(hash: string, scope: RecordScope): Promise<StoredRecord | null>
  /**
   * Gives the record that answers the call with this id (a uuid), or null while none is committed.
   */
  findByCall(callId: string): Promise<StoredRecord | null>
  /** Gives the record of one leaf, or null while it is not committed. */
  findByIndex(notary: string, index: number): Promise<StoredRecord | null>
  /** Gives the records of those of these leaves that are committed, by index. */
  findByIndexes(notary: string, indexes: readonly number[]): Promise<readonly StoredRecord[]>
  /**
   * Gives the page that follows `cursor` (null: the newest). A cursor that is no record of this
   * very list, or no uuid, gives 'unknown_cursor'. Records added meanwhile never shift a later
   * page.
   */
  list(
    query: RecordScope & { readonly limit: number; readonly cursor: string | null },
  ): Promise<RecordPage | 'unknown_cursor'>
  /**
   * Records of a log's leaves from index `start` on, in the order of their indexes, at most
   * `limit`.
   */
  listFrom(
    query: RecordScope & { readonly logId: number; readonly start: number; readonly limit: number },
  ): Promise<readonly StoredRecord[]>
}

/** The history, read on the database's shared connections. */
export function createRecordsStore({ queries }: Pick<Database, 'queries'>): RecordsStore {
  const readDocuments = createDocumentReader(queries)

  /** `page` chooses the records; the joins then cost no more than it gives. */
  async function read(
    page: RawBuilder<unknown>,
    order: RawBuilder<unknown>,
  ): Promise<readonly StoredRecord[]> {
    const { rows } = await sql<RecordRow>`
      select r.*, l.notary, l.public_key, a.tx_hash, a.size as head_size, a.root as head_root,
        a.signature as head_signature, l.chain_id, l.contract, ${laterHashes('a')} as reanchored
      from (${page}) r
      join logs l on l.id = r.log_id
      cross join lateral (
        select x.* from anchors x
        where x.log_id = r.log_id and x.size > r.index and x.attempt = 0
        order by x.size limit 1) a
      order by ${order}`.execute(queries)
    const [attestationOf, hashAt] = await Promise.all([
      readDocuments(rows.map((row) => row.document_digest)),
      readNodes(queries, rows.flatMap(pathCoordinates)),
    ])
    return rows.map((row) =>
      toRecord(row, { attestation: attestationOf(row.document_digest), hashAt }),
    )
  }

  async function findFirst(where: RawBuilder<unknown>): Promise<StoredRecord | null> {
    const page = sql`select * from records where ${where} order by position limit 1`
    return (await read(page, sql`r.position`))[0] ?? null
  }

  return {
    findByHash: (hash, scope) => findFirst(sql`hash = ${decodeHex(hash)} and ${isWithin(scope)}`),
    findByCall: (callId) => findFirst(sql`call_id = ${callId}`),
    findByIndex: (notary, index) =>
      findFirst(sql`log_id = (select id from logs where notary = ${notary}) and index = ${index}`),
    findByIndexes: (notary, indexes) =>
      read(
        sql`
          select * from records
          where log_id = (select id from logs where notary = ${notary})
            and index = any (${[...indexes]}::bigint[])`,
        sql`r.index`,
      ),
    async list({ accountId, limit, cursor }) {
      const scope = { accountId }
      const before = cursor === null ? null : await findPosition(queries, cursor, scope)
      if (before === undefined) return 'unknown_cursor'
      const older = before === null ? sql`true` : sql`position < ${before}`
      // One more than asked for tells whether anything is left.
      const page = sql`
        select * from records
        where ${isWithin(scope)} and ${older} and position < ${FIRST_UNANCHORED}
        order by position desc limit ${limit + 1}`
      const records = await read(page, sql`r.position desc`)
      if (records.length <= limit) return { records, cursor: null }
      const shown = records.slice(0, limit)
      return { records: shown, cursor: shown.at(-1)?.id ?? null }
    },
    listFrom({ accountId, logId, start, limit }) {
      const isOfLeaf = sql`log_id = ${logId} and index >= ${start}`
      // Records of a log have positions in the order of their leaves (commits.ts). Without these
      // bounds, one account's few would be looked for in all the log has, or in all the account has
      // in other logs.
      const isBetween = sql`
        position >= (select position from records where ${isOfLeaf} order by index limit 1)
        and position <= (select position from records where ${isOfLeaf} order by index desc limit 1)`
      const within =
        accountId === null ? sql`true` : sql`${isWithin({ accountId })} and ${isBetween}`
      const order = accountId === null ? sql`index` : sql`position`
      return read(
        sql`select * from records where ${isOfLeaf} and ${within} order by ${order} limit ${limit}`,
        sql`r.index`,
      )
    },
  }
}

type RecordRow = Selectable<Tables['records']> & {
  readonly notary: string
  readonly public_key: Uint8Array
  readonly tx_hash: Uint8Array
  readonly head_size: number
  readonly head_root: Uint8Array
  readonly head_signature: Uint8Array
  readonly chain_id: number
  readonly contract: string
  readonly reanchored: string | null
}

/**
 * Lists end before the first record that has no anchor yet, though later ones may have theirs: else
 * it would come to stand before what somebody has read already.
 */
const FIRST_UNANCHORED = sql`coalesce((
  select min(u.position) from unanchored_heads h
  cross join lateral (
    select position from records where log_id = h.log_id and index = h.first_index limit 1) u
), 9223372036854775807)`

function isWithin({ accountId }: RecordScope): RawBuilder<unknown> {
  return accountId === null ? sql`true` : sql`account_id = ${accountId}::uuid`
}

const UUID_FORM = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** Where the record with this id stands; undefined when it is none of this list. */
async function findPosition(
  queries: Queries,
  id: string,
  scope: RecordScope,
): Promise<number | undefined> {
  if (!UUID_FORM.test(id)) return undefined
  const { rows } = await sql<{ position: number }>`
    select position from records where id = ${id}::uuid and ${isWithin(scope)}`.execute(queries)
  return rows[0]?.position
}

function pathCoordinates({
  log_id: logId,
  index,
  head_size: size,
}: RecordRow): readonly StoredNodeCoordinate[] {
  return inclusionNodes(index, size).flatMap((subtrees) =>
    subtrees.map((node) => ({ ...node, logId })),
  )
}

function toRecord(
  row: RecordRow,
  { attestation, hashAt }: { readonly attestation: string; readonly hashAt: HashLookup },
): StoredRecord {
  const path = buildProof(inclusionNodes(row.index, row.head_size), (node) =>
    hashAt({ ...node, logId: row.log_id }),
  )
  return {
    id: row.id,
    notary: row.notary,
    index: row.index,
    hash: encodeHex(row.hash),
    request: row.request,
    response: row.response,
    usage: row.usage === null ? null : JSON.parse(row.usage),
    receipt: row.receipt,
    publicKey: `0x${encodeHex(row.public_key)}`,
    signature: `0x${encodeHex(row.signature)}`,
    txHash: `0x${encodeHex(row.tx_hash)}`,
    reanchored: parseHashes(row.reanchored),
    attestation,
    accountId: row.account_id,
    requestId: row.request_id,
    createdAt: row.created_at,
    outcome: row.outcome,
    logProof: {
      size: row.head_size,
      root: encodeHex(row.head_root),
      signature: `0x${encodeHex(row.head_signature)}`,
      path: path.map(encodeHex),
      chainId: row.chain_id,
      contract: row.contract,
    },
  }
}

/** Documents kept in memory, newest use last; one serves all records of some hours. */
export const DOCUMENTS_CACHED_MAX = 64

/**
 * Gives the standard base64 of a document that was read. Throws when it was not asked for, or is
 * not stored.
 */
type DocumentLookup = (digest: Uint8Array) => string

/**
 * Gives a reader of attestation documents by digest, which never change: those read lately come
 * from memory.
 */
export function createDocumentReader(
  queries: Queries,
): (digests: readonly Uint8Array[]) => Promise<DocumentLookup> {
  const cache = new LruMap<string, string>(DOCUMENTS_CACHED_MAX)

  return async (digests) => {
    const found = new Map<string, string>()
    const missing = new Map<string, Uint8Array>()
    for (const digest of digests) {
      const key = encodeHex(digest)
      const cached = cache.get(key)
      if (cached === undefined) missing.set(key, digest)
      else found.set(key, cached)
    }
    if (missing.size > 0) {
      const rows = await queries
        .selectFrom('attestation_documents')
        .select(['digest', 'document'])
        .where('digest', 'in', [...missing.values()])
        .execute()
      for (const row of rows) {
        const [key, text] = [encodeHex(row.digest), encodeBase64(row.document)]
        found.set(key, text)
        cache.set(key, text)
      }
    }
    return (digest) => {
      const text = found.get(encodeHex(digest))
      if (text === undefined)
        throw new Error(`expected a stored attestation document ${encodeHex(digest)}`)
      return text
    }
  }
}
