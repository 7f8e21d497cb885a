import { type RawBuilder, sql } from 'kysely'
import type { Database } from '#src/storage/database.ts'

/** The time span of the records, and the number of their logs. */
const YEARS = 3
const SPAN_SECONDS = YEARS * 365 * 86_400
const LOGS = 12
/** Accounts beside the account whose records are copied, which gets every tenth copy. */
const ACCOUNTS = 999
/** An enclave renews its document a few times a day, and attests its log every ten minutes. */
const DOCUMENTS = YEARS * 365 * 4
const ATTESTATIONS_MAX = YEARS * 365 * 144
/** Records in one statement, so that progress and size can be watched. */
const CHUNK = 250_000

/** The source of the copies: records that a service stored before. */
export type YearsOfData = {
  readonly records: number
  readonly recordsPerAnchor: number
  readonly databaseBytesMax: number
  readonly onProgress: (stored: number) => void
}

/**
 * Adds `records` copies of the stored records, with all rows that belong to them: logs with their
 * nodes, anchors with their blocks, attestations, accounts, usage. Sizes of rows, and the order in
 * which indexes grow, are as in the product. The link between a record and its proof is not:
 * hashes, leaves and nodes are made up, and no copy verifies. Throws when the database exceeds
 * `databaseBytesMax`.
 */
export async function addYears(database: Queried, wanted: YearsOfData): Promise<void> {
  const { queries } = database
  const whole = (count: number) =>
    Math.ceil(count / wanted.recordsPerAnchor) * wanted.recordsPerAnchor
  const [perLog, chunk] = [whole(wanted.records / LOGS), whole(CHUNK)]
  const run = (statement: RawBuilder<unknown>) => statement.execute(queries)
  await makeTemplates(run)
  await run(sql`
    insert into accounts (id, name, created_at)
    select gen_random_uuid(), 'years-' || i, 1700000000 from generate_series(1, ${ACCOUNTS}::integer) i`)
  await run(sql`
    create table years_accounts as
    select row_number() over (order by name) as number, id from accounts where name like 'years-%'`)
  await run(sql`create unique index on years_accounts (number)`)
  await addDocuments(run)
  const beginAt = Math.floor(Date.now() / 1_000) - SPAN_SECONDS
  for (let stored = 0; stored < wanted.records; ) {
    const count = Math.min(perLog, wanted.records - stored)
    const logId = await addLog(database, { count, beginAt })
    for (let from = 0; from < count; from += chunk) {
      const upTo = Math.min(count, from + chunk)
      await addRecords(run, { ...wanted, logId, from, upTo, before: stored, beginAt })
      await addAnchors(run, { ...wanted, logId, from, upTo, before: stored, beginAt })
      wanted.onProgress(stored + upTo)
      const size = await sql<{ bytes: number }>`
        select pg_database_size(current_database())::bigint as bytes`.execute(queries)
      if ((size.rows[0]?.bytes ?? 0) > wanted.databaseBytesMax)
        throw new Error(`expected a database of at most ${wanted.databaseBytesMax} bytes`)
    }
    await addNodes(run, { logId, count })
    stored += count
  }
  await addAttestations(run, { records: wanted.records, beginAt })
  await addUsage(run)
  for (const name of ['records', 'anchors', 'heads', 'accounts', 'documents'])
    await run(sql`drop table ${sql.ref(`years_${name}`)}`)
  await run(sql`vacuum (analyze)`)
}

type Queried = Pick<Database, 'queries'>
type Run = (statement: RawBuilder<unknown>) => Promise<unknown>

async function makeTemplates(run: Run): Promise<void> {
  await run(sql`
    create table years_records as
    select row_number() over (order by position) - 1 as number,
      account_id, request_id, request, response, receipt, signature, outcome, usage, content
    from records`)
  await run(sql`create unique index on years_records (number)`)
  await run(sql`
    create table years_anchors as
    select row_number() over (order by a.nonce) - 1 as number,
      a.raw, a.signature, a.gas_used, b.header, b.transaction_index, b.transaction_proof, b.receipt_proof
    from anchors a join anchor_blocks b using (relayer, nonce)`)
  await run(sql`create unique index on years_anchors (number)`)
  await run(sql`create table years_heads as select document from head_attestations limit 1`)
}

/** Documents of one size, all different. */
async function addDocuments(run: Run): Promise<void> {
  await run(sql`
    create table years_documents as
    select i as number, sha256(int8send(i)) as digest, overlay(d.document placing int8send(i) from 100) as document
    from generate_series(0, ${DOCUMENTS}::bigint - 1) i,
      (select document from attestation_documents limit 1) d`)
  await run(sql`create unique index on years_documents (number)`)
  await run(sql`
    insert into attestation_documents (digest, document, first_seen_at)
    select digest, document, 1700000000 from years_documents order by number`)
}

/** A log of `size` leaves, as a copy of the newest log, and its key. */
async function addLog(
  { queries }: Queried,
  { count, beginAt }: { readonly count: number; readonly beginAt: number },
): Promise<number> {
  const { rows } = await sql<{ id: number }>`
    insert into logs (notary, public_key, size, root, chain_id, contract, boot_configuration, created_at)
    select '0x' || substr(md5(random()::text) || md5(random()::text), 1, 40), public_key, ${count}::bigint,
      root, chain_id, contract, boot_configuration, ${beginAt}::bigint
    from logs order by id desc limit 1 returning id`.execute(queries)
  return rows[0]?.id ?? Number.NaN
}

type Part = YearsOfData & {
  readonly logId: number
  readonly from: number
  readonly upTo: number
  /** Records in the logs before this one. */
  readonly before: number
  readonly beginAt: number
}

/** The time at which record `i` of all was made. */
function madeAt({ beginAt, records }: Part, i: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`(${beginAt}::bigint + (${i} * ${SPAN_SECONDS}::numeric / ${records}::numeric)::bigint)`
}

async function addRecords(run: Run, part: Part): Promise<void> {
  const { logId, from, upTo, before, recordsPerAnchor } = part
  const i = sql`(i + ${before}::bigint)`
  await run(sql`
    insert into records (id, log_id, index, account_id, request_id, hash, request, response, receipt, signature,
      document_digest, relayer, nonce, outcome, created_at, usage, content)
    select gen_random_uuid(), ${logId}::integer, i,
      case when i % 10 = 0 then t.account_id else a.id end, t.request_id,
      sha256(int8send(${i})), t.request, t.response, t.receipt, t.signature,
      d.digest, ${RELAYER}, ${i} / ${recordsPerAnchor}::bigint, t.outcome, ${madeAt(part, i)}, t.usage, t.content
    from generate_series(${from}::bigint, ${upTo}::bigint - 1) i
    ${pick('years_records', sql`i % (select count(*) from years_records)`)} t
    ${pick('years_accounts', sql`1 + (i * 7919) % ${ACCOUNTS}::bigint`)} a
    ${pick('years_documents', sql`${i} * ${DOCUMENTS}::bigint / ${part.records}::bigint`)} d`)
}

/** One row of templates, by its number: a lookup, which keeps the order of the joined rows. */
function pick(table: string, number: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`cross join lateral (
    select * from ${sql.ref(table)} x where x.number = (${number})::bigint limit 1)`
}

/**
 * A relayer that no longer pays: the copies are not sent to the chain, or looked for on the chain.
 */
const RELAYER = `0x${'2a'.repeat(20)}`

async function addAnchors(run: Run, part: Part): Promise<void> {
  const { logId, from, upTo, before, recordsPerAnchor: per } = part
  const nonce = sql`((i + ${before}::bigint) / ${per}::bigint)`
  const last = sql`least(i + ${per}::bigint, ${upTo}::bigint)`
  const anchors = sql`
    generate_series(${from}::bigint, ${upTo}::bigint - 1, ${per}::bigint) i
    ${pick('years_anchors', sql`${nonce} % (select count(*) from years_anchors)`)} t`
  await run(sql`
    insert into anchors (relayer, nonce, tx_hash, raw, log_id, size, root, signature, state, block_number,
      block_hash, gas_used, created_at, proven_block_hash)
    select ${RELAYER}, ${nonce}, sha256(int8send(${nonce})), t.raw, ${logId}::integer, ${last}, sha256(int8send(-i)),
      t.signature, 'confirmed', 1000000 + ${nonce}, sha256(int8send(${nonce} + 1)), t.gas_used,
      ${madeAt(part, sql`(i + ${before}::bigint)`)}, sha256(int8send(${nonce} + 1))
    from ${anchors}`)
  await run(sql`
    insert into anchor_blocks (relayer, nonce, block_hash, number, header, transaction_index, transaction_proof,
      receipt_proof)
    select ${RELAYER}, ${nonce}, sha256(int8send(${nonce} + 1)), 1000000 + ${nonce}, t.header, t.transaction_index,
      t.transaction_proof, t.receipt_proof
    from ${anchors}`)
}

/** Every perfect subtree of a log of this size, in the order in which commits add them. */
async function addNodes(
  run: Run,
  { logId, count }: { readonly logId: number; readonly count: number },
): Promise<void> {
  await run(sql`
    insert into log_nodes (log_id, level, index, hash)
    select ${logId}::integer, level, index, sha256(int8send(level::bigint * 1000000000 + index))
    from generate_series(0, floor(log(2, ${count}::numeric))::integer) level
    cross join lateral generate_series(0, (${count}::bigint >> level) - 1) index
    order by ((index + 1) << level), level`)
}

async function addAttestations(
  run: Run,
  { records, beginAt }: { readonly records: number; readonly beginAt: number },
): Promise<void> {
  const step = Math.max(1, Math.ceil(records / ATTESTATIONS_MAX))
  await run(sql`
    insert into head_attestations (log_id, size, is_first, root, block_number, block_hash, document, created_at)
    select l.id, s.leaves, true, l.root, 1000000, l.root,
      overlay(h.document placing int8send(s.leaves) from 100), ${beginAt}::bigint
    from years_heads h, logs l cross join lateral generate_series(1, l.size, ${step}::bigint) s(leaves)
    where l.created_at = ${beginAt}::bigint`)
}

/** Usage of the last 90 days, in the counts that calls would have made. */
async function addUsage(run: Run): Promise<void> {
  await run(sql`
    insert into usage_hours (account_id, hour_at, operation, family, requests, tokens)
    select account_id, created_at - created_at % 3600, 'verified', 'other', count(*), 500 * count(*)
    from records where created_at > extract(epoch from now()) - 90 * 86400 and relayer = ${RELAYER}
    group by 1, 2
    on conflict do nothing`)
}
