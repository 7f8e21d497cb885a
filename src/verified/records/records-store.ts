import { type RawBuilder, type Selectable, sql } from 'kysely'
import { decodeHex, encodeBase64, encodeHex } from '#attestation/bytes.ts'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import type { TokenUsage } from '#attestation/dialects/usage.ts'
import { buildProof, inclusionNodes } from '#attestation/merkle/proof-nodes.ts'
import type { Receipt } from '#attestation/receipt.ts'
import { laterHashes, parseHashes } from '../../chain/anchors-store.ts'
import { LruMap } from '../../runtime/lru-map.ts'
import type { Database } from '../../storage/database.ts'
import { PREPARED } from '../../storage/prepared.ts'
import type { Queries, Tables } from '../../storage/tables.ts'
import { type HashLookup, readNodes, type StoredNodeCoordinate } from '../log-nodes-store.ts'
import { erasureOf } from './erasures-store.ts'
import { type ContentRow, readContent, type Withheld } from './record-content.ts'

/** The signed head of a record's commit, and the path from the record's leaf to this head. */
type LogProof = {
  /** Number of leaves under the head. */
  readonly size: number
  /** Hex. */
  readonly root: string
  /** The notary's EIP-712 signature of the head, 0x hex. */
  readonly signature: string
  /** Hex, the leaf's sibling first (RFC 9162, 2.1.3). */
  readonly path: readonly string[]
  /** The head is signed for this chain and contract (0x, lower case). */
  readonly chainId: number
  readonly contract: string
}

/**
 * A completion and its proofs. Texts are the canonical bytes that were hashed. Only an erasure
 * changes the texts.
 */
export type StoredRecord = {
  /** uuid. History pages use it as their cursor. */
  readonly id: string
  /** The address of the signing key, 0x, lower case. This address is also the id of the log. */
  readonly notary: string
  /** Index of the leaf in the notary's log. */
  readonly index: number
  /** Hash of the completion, 64 hex digits without prefix. */
  readonly hash: string
  /**
   * Canonical JSON, as are `response` and `receipt`. Request and response are null for an encrypted
   * call.
   */
  readonly request: string | null
  readonly response: string | null
  /** Why request and response are null although the call was not encrypted. */
  readonly withheld?: Withheld
  readonly receipt: string
  /** Only for an encrypted call: the usage in its response. */
  readonly usage: TokenUsage | null
  /** 0x + 65 bytes, uncompressed point. */
  readonly publicKey: string
  /** 0x + 65 bytes r||s||v. */
  readonly signature: string
  /** This transaction anchors the head of `logProof`. 0x + 32 bytes. Never changes. */
  readonly txHash: string
  /**
   * Later transactions that anchor this head, in order. Each replaced a transaction that the chain
   * could not mine.
   */
  readonly reanchored: readonly string[]
  /** Standard base64. */
  readonly attestation: string
  /** The account that made the call. Null when the call's context did not state one. */
  readonly accountId: string | null
  readonly requestId: string | null
  /** When the enclave finished the completion, Unix seconds. */
  readonly createdAt: number
  readonly outcome: Receipt['outcome']
  readonly logProof: LogProof
}

export type HeadlessRecord = Omit<
  StoredRecord,
  'notary' | 'publicKey' | 'txHash' | 'reanchored' | 'logProof'
>

/** The members of a record that an answer with a proof needs. */
export type AnsweredRecord = Omit<
  StoredRecord,
  'id' | 'request' | 'reanchored' | 'accountId' | 'requestId' | 'createdAt'
>

/** `cursor` is the id of the last record. Null when there are no older records. */
type RecordPage = {
  readonly records: readonly StoredRecord[]
  readonly cursor: string | null
  /** True if the page ended because FILTERED_RECORDS_MAX records were examined. */
  readonly isCut?: boolean
}

/** A null filter does not restrict the list. */
export type RecordFilters = {
  /** Matches the requested model, or the model that the provider returned. */
  readonly model: string | null
  readonly provider: string | null
  readonly outcome: Receipt['outcome'] | null
  /** Unix seconds. `until` is not included. */
  readonly since: number | null
  readonly until: number | null
  readonly isEncrypted: boolean | null
  readonly dialect: DialectName | null
}

export const NO_FILTERS: RecordFilters = {
  model: null,
  provider: null,
  outcome: null,
  since: null,
  until: null,
  isEncrypted: null,
  dialect: null,
}

/** At most this many records are examined for one page with filters. */
export const FILTERED_RECORDS_MAX = 10_000

/** Null stands for all accounts. */
export type RecordScope = { readonly accountId: string | null }

/**
 * Reads the history: the records whose anchor is stored. Every method throws the driver's error.
 */
export type RecordsStore = {
  /** The record with the lowest position that has this hash (hex, no prefix). */
  findByHash(hash: string, scope: RecordScope): Promise<StoredRecord | null>
  /**
   * As `findByHash` for all accounts, but without content: request, response and usage are null,
   * and an erasure is not shown.
   */
  findProof(hash: string): Promise<StoredRecord | null>
  /** The record that answers the call with this id (a uuid). Null before its commit. */
  findByCall(callId: string): Promise<StoredRecord | null>
  /** Null while the leaf is not committed. */
  findByIndex(notary: string, index: number): Promise<StoredRecord | null>
  /** Ordered by index. Skips leaves that are not committed. */
  findByIndexes(notary: string, indexes: readonly number[]): Promise<readonly StoredRecord[]>
  /**
   * As `findByIndexes`, for a caller that already has head and proof. Leaves out erased records.
   */
  findHeadless(notary: string, indexes: readonly number[]): Promise<readonly HeadlessRecord[]>
  /**
   * The page after `cursor` (null: the newest page), newest first. 'unknown_cursor' if the list has
   * no such record. New records never shift a later page. With filters, the page ends after
   * FILTERED_RECORDS_MAX examined records, even if it is empty.
   */
  list(
    query: RecordScope & {
      readonly limit: number
      readonly cursor: string | null
      readonly filters?: RecordFilters
    },
  ): Promise<RecordPage | 'unknown_cursor'>
  /** Records from leaf `start` on, ordered by index. */
  listFrom(
    query: RecordScope & { readonly logId: number; readonly start: number; readonly limit: number },
  ): Promise<readonly StoredRecord[]>
}

/** `chainId`: new heads are anchored on this chain. */
export function createRecordsStore(
  { queries, content }: Pick<Database, 'queries' | 'content'>,
  chainId: number,
): RecordsStore {
  const readDocuments = createDocumentReader(queries)

  /**
   * Reads the records that the query `page` selects. `start` is the beginning of the SQL statement.
   */
  async function read(
    page: RawBuilder<unknown>,
    order: RawBuilder<unknown>,
    start: RawBuilder<unknown> = sql``,
  ): Promise<readonly StoredRecord[]> {
    const { rows } = await sql<RecordRow>`${start}
      select r.id, r.log_id, r.index, r.account_id, r.request_id, r.hash, r.request, r.response,
        r.content, r.usage, r.receipt, r.signature, r.document_digest, r.outcome, r.created_at,
        l.notary, l.public_key, a.tx_hash, a.size as head_size, a.root as head_root,
        a.signature as head_signature, l.chain_id, l.contract, ${laterHashes('a')} as reanchored,
        coalesce(r.erased_at, e.created_at) as gone_at, e.requested_by as gone_by, e.reason as gone_for
      from (${page}) r
      join logs l on l.id = r.log_id
      left join accounts o on o.id = r.account_id
      left join erasures e on e.id = ${erasureOf('r', 'o')}
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
      toRecord(row, { attestation: attestationOf(row.document_digest), hashAt, content }),
    )
  }

  async function findFirst(where: RawBuilder<unknown>): Promise<StoredRecord | null> {
    const page = sql`select * from records where ${where} order by position limit 1`
    return (await read(page, sql`r.position`))[0] ?? null
  }

  return {
    findByHash: (hash, scope) => findFirst(sql`hash = ${decodeHex(hash)} and ${isWithin(scope)}`),
    async findProof(hash) {
      const page = sql`
        select position, id, log_id, index, account_id, request_id, hash, null as request,
          null as response, receipt, signature, document_digest, outcome, created_at, null as usage,
          null::bytea as content, null::bigint as erased_at, null::integer as erasure_id
        from records where hash = ${decodeHex(hash)} order by position limit 1`
      return (await read(page, sql`r.position`))[0] ?? null
    },
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
        PREPARED,
      ),
    async findHeadless(notary, indexes) {
      const { rows } = await sql<HeadlessRow>`${PREPARED}
        select id, index, account_id, request_id, hash, request, response, content, usage, receipt,
          signature, document_digest, outcome, created_at
        from records
        where log_id = (select id from logs where notary = ${notary})
          and index = any (${[...indexes]}::bigint[]) and erased_at is null`.execute(queries)
      const attestationOf = await readDocuments(rows.map((row) => row.document_digest))
      return rows.map((row) => {
        const present = { ...row, gone_at: null, gone_by: null, gone_for: null }
        return toHeadless(present, { attestation: attestationOf(row.document_digest), content })
      })
    },
    async list({ accountId, limit, cursor, filters = NO_FILTERS }) {
      const scope = { accountId }
      const before = cursor === null ? null : await findPosition(queries, cursor, scope)
      if (before === undefined) return 'unknown_cursor'
      const isFiltered = Object.values(filters).some((filter) => filter !== null)
      // Both statements of a page with filters must examine the same records, so the first page
      // needs an upper bound too.
      const end = before ?? (isFiltered ? await findEnd(queries, chainId) : null)
      const older = end === null ? sql`true` : sql`position < ${end}`
      // Reads one record more than the page needs, to find out if there are older records.
      const listed = sql`
        select * from records
        where ${isWithin(scope)} and ${older} and position < ${firstUnanchored(chainId)}
          and ${isListed(chainId)}
        order by position desc`
      const looked = sql`${listed} limit ${FILTERED_RECORDS_MAX}`
      const page = isFiltered
        ? sql`select * from (${looked}) f where ${fits(filters)} order by position desc limit ${limit + 1}`
        : sql`${listed} limit ${limit + 1}`
      const records = await read(page, sql`r.position desc`)
      if (records.length > limit) {
        const shown = records.slice(0, limit)
        return { records: shown, cursor: shown.at(-1)?.id ?? null, isCut: false }
      }
      const rest = isFiltered ? await findLast(queries, looked) : null
      return { records, cursor: rest, isCut: rest !== null }
    },
    listFrom({ accountId, logId, start, limit }) {
      const isOfLeaf = sql`log_id = ${logId} and index >= ${start}`
      // Within a log, records and leaves have the same order (commits-store.ts). So the first and
      // the last position limit the search. Without these limits, the database could read all
      // records of the log, or all records of the account.
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

type HeadlessRow = Pick<
  Selectable<Tables['records']>,
  | 'index'
  | 'account_id'
  | 'request_id'
  | 'usage'
  | 'receipt'
  | 'signature'
  | 'document_digest'
  | 'outcome'
  | 'created_at'
> &
  Omit<ContentRow, 'gone_at' | 'gone_by' | 'gone_for'>

type RecordRow = HeadlessRow &
  ContentRow & {
    readonly log_id: number
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
 * A list ends before the first record without an anchor. This record would otherwise appear later,
 * above records that the reader has already seen.
 */
function firstUnanchored(chainId: number): RawBuilder<number> {
  return sql`coalesce((
    select min(u.position) from unanchored_heads h
    join logs l on l.id = h.log_id and l.chain_id = ${chainId}
    cross join lateral (
      select position from records where log_id = h.log_id and index = h.first_index limit 1) u
  ), 9223372036854775807)`
}

/**
 * Commits that were not anchored before the gateway changed to another chain get no anchor, so a
 * list leaves their records out.
 */
function isListed(chainId: number): RawBuilder<unknown> {
  return sql`(
    log_id <> all (array(
      select h.log_id from unanchored_heads h join logs l on l.id = h.log_id
      where l.chain_id <> ${chainId}))
    or exists (select from anchors a where a.log_id = records.log_id and a.size > records.index))`
}

function isWithin({ accountId }: RecordScope): RawBuilder<unknown> {
  return accountId === null ? sql`true` : sql`account_id = ${accountId}::uuid`
}

function fits({
  model,
  provider,
  outcome,
  since,
  until,
  isEncrypted,
  dialect,
}: RecordFilters): RawBuilder<unknown> {
  const named = sql`receipt::json -> 'model'`
  const all = [
    ...(outcome === null ? [] : [sql`outcome = ${outcome}`]),
    ...(since === null ? [] : [sql`created_at >= ${since}::bigint`]),
    ...(until === null ? [] : [sql`created_at < ${until}::bigint`]),
    ...(isEncrypted === null
      ? []
      : [sql`(receipt::json ->> 'encrypted')::boolean = ${isEncrypted}::boolean`]),
    ...(dialect === null ? [] : [sql`receipt::json ->> 'dialect' = ${dialect}::text`]),
    ...(model === null
      ? []
      : [sql`${model} in (${named} ->> 'requested', ${named} ->> 'returned')`]),
    ...(provider === null ? [] : [sql`receipt::json -> 'provider' ->> 'name' = ${provider}::text`]),
  ]
  return sql.join(all, sql` and `)
}

/** All positions of the list are now below this number. */
async function findEnd(queries: Queries, chainId: number): Promise<number> {
  const { rows } = await sql<{ bound: number }>`
    select least(${firstUnanchored(chainId)},
      coalesce((select max(position) from records), 0) + 1) as bound`.execute(queries)
  return rows[0]?.bound ?? 0
}

/** Null when fewer than FILTERED_RECORDS_MAX records were examined. */
async function findLast(queries: Queries, looked: RawBuilder<unknown>): Promise<string | null> {
  const { rows } = await sql<{ id: string }>`
    select id from (${looked}) f order by position desc
    offset ${FILTERED_RECORDS_MAX - 1}::integer limit 1`.execute(queries)
  return rows[0]?.id ?? null
}

export const UUID_FORM = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** Undefined when the record is not in this list. */
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
  {
    attestation,
    hashAt,
    content,
  }: { readonly attestation: string; readonly hashAt: HashLookup } & Pick<Database, 'content'>,
): StoredRecord {
  const path = buildProof(inclusionNodes(row.index, row.head_size), (node) =>
    hashAt({ ...node, logId: row.log_id }),
  )
  return {
    ...toHeadless(row, { attestation, content }),
    notary: row.notary,
    publicKey: `0x${encodeHex(row.public_key)}`,
    txHash: `0x${encodeHex(row.tx_hash)}`,
    reanchored: parseHashes(row.reanchored),
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

function toHeadless(
  row: HeadlessRow & ContentRow,
  { attestation, content }: { readonly attestation: string } & Pick<Database, 'content'>,
): HeadlessRecord {
  return {
    id: row.id,
    index: row.index,
    hash: encodeHex(row.hash),
    ...readContent(row, content),
    usage: row.usage === null ? null : JSON.parse(row.usage),
    receipt: row.receipt,
    signature: `0x${encodeHex(row.signature)}`,
    attestation,
    accountId: row.account_id,
    requestId: row.request_id,
    createdAt: row.created_at,
    outcome: row.outcome,
  }
}

/** By default, an enclave needs one document per hour. */
export const DOCUMENTS_CACHED_MAX = 64

/** Returns standard base64. Throws when the document was not requested or is not stored. */
type DocumentLookup = (digest: Uint8Array) => string

/** Keeps recent documents in memory, because they never change. */
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
