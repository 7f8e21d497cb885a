import { type RawBuilder, sql } from 'kysely'
import { encodeHex } from '#attestation/bytes.ts'
import { answerIdentity } from '../../accounts/idempotency-store.ts'
import { clockSeconds } from '../../storage/clock.ts'
import type { ContentCipher, ContentIdentity } from '../../storage/content-cipher.ts'
import type { Database } from '../../storage/database.ts'
import { ContentUnavailable } from '../../storage/errors.ts'
import { readContent, recordIdentity } from './record-content.ts'

/** A batch ends at this many positions, or at this many bytes of stored content. */
const BATCH_POSITIONS = 2_000
const BATCH_BYTES_MAX = 16 * 1024 * 1024

/**
 * Encrypts stored content with the newest key: plain content, and content under older keys. The
 * work can be stopped at any time. A new start skips finished content.
 */
export function createContentOperations(database: Pick<Database, 'queries' | 'content'>) {
  const { queries, content } = database
  return {
    /**
     * Never returns a key itself. `is_known`: this process has the key. `is_newest`: this process
     * encrypts with the key. `retired_at`: when no content was left under the key.
     */
    async keys() {
      const rows = await queries
        .selectFrom('content_keys')
        .selectAll()
        .orderBy('first_used_at')
        .orderBy('id')
        .execute()
      const newest = content?.keyIds.at(-1)
      return rows.map((row) => ({
        ...row,
        is_known: content?.keyIds.includes(row.id) ?? false,
        is_newest: row.id === newest,
      }))
    },
    /**
     * Encrypts the batch after a position. `next` is the start of the next batch, null at the end.
     */
    async encrypt(after: number) {
      if (content === null) return 'no_key'
      if (after === 0) await encryptAnswers(database, content)
      const { rows, next } = await chooseRecords(database, content, after)
      const sealed = rows.flatMap((row) => {
        const { request, response } = readContent({ ...row, ...NOT_GONE }, content)
        if (request === null || response === null) return []
        const identity = recordIdentity({ id: row.id, hash: encodeHex(row.hash) })
        const bytes = content.seal([request, response], identity)
        return [{ position: row.position, content: Buffer.from(bytes).toString('base64') }]
      })
      if (sealed.length > 0) await replaceContent(database, JSON.stringify(sealed))
      return { next, encrypted: sealed.length, unreadable: rows.length - sealed.length }
    },
    /** Records that no content is left under older keys. */
    async retire() {
      if (content === null) return 'no_key'
      await sql`
        update content_keys set retired_at = ${clockSeconds(null)}
        where retired_at is null and id <> ${content.keyIds.at(-1) ?? ''}`.execute(queries)
      return 'retired'
    },
  }
}

const NOT_GONE = { gone_at: null, gone_by: null, gone_for: null }

/**
 * `sealed` is JSON with base64. Records that were erased in the meantime stay erased. Rows are
 * locked in the order of their positions, so two processes cannot block each other forever.
 */
async function replaceContent(
  { queries }: Pick<Database, 'queries'>,
  sealed: string,
): Promise<void> {
  await sql`
    with given as (
      select position, decode(content, 'base64') as content
      from json_to_recordset(${sealed}::text::json) as given(position bigint, content text)
    ), held as (
      select r.position from records r
      where r.position in (select position from given) and (r.request is not null or r.content is not null)
      order by r.position for update
    )
    update records r set request = null, response = null, content = given.content
    from held join given using (position) where r.position = held.position`.execute(queries)
}

/** True if the column's content is not encrypted with the newest key. */
function isOld(column: RawBuilder<unknown>, { head }: ContentCipher): RawBuilder<boolean> {
  return sql`substring(${column} from 1 for ${head.length}::integer) <> ${head}`
}

type OldRecord = {
  readonly position: number
  readonly id: string
  readonly hash: Uint8Array
  readonly request: string | null
  readonly response: string | null
  readonly content: Uint8Array | null
}

/**
 * `next` is null at the end. A batch has a limited number of positions, so that no batch takes
 * long.
 */
async function chooseRecords(
  { queries }: Pick<Database, 'queries'>,
  content: ContentCipher,
  after: number,
): Promise<{ readonly rows: readonly OldRecord[]; readonly next: number | null }> {
  const end = after + BATCH_POSITIONS
  // One statement chooses the rows and says whether rows are left, because content can be erased or
  // encrypted between two statements.
  const { rows } = await sql<OldRecord & { readonly isCut: boolean }>`
    with old as (
      select position, coalesce(pg_column_size(content), 0) + coalesce(pg_column_size(request), 0)
        + coalesce(pg_column_size(response), 0) as size
      from records
      where position > ${after} and position <= ${end}
        and (request is not null or ${isOld(sql`content`, content)})
    ), summed as (
      select position, coalesce(sum(size) over (
        order by position rows between unbounded preceding and 1 preceding), 0) as before
      from old
    )
    select r.position, r.id, r.hash, r.request, r.response, r.content,
      exists (select from summed where before >= ${BATCH_BYTES_MAX}) as "isCut"
    from records r join summed using (position)
    where summed.before < ${BATCH_BYTES_MAX}
    order by position`.execute(queries)
  const last = rows.at(-1)
  if (last?.isCut) return { rows, next: last.position }
  const later = await sql`
    select from records where position > ${end} limit 1`.execute(queries)
  return { rows, next: later.rows.length === 0 ? null : end }
}

/** Encrypts the stored answers to calls with an Idempotency-Key. Answers are kept for a day. */
async function encryptAnswers(
  { queries }: Pick<Database, 'queries'>,
  content: ContentCipher,
): Promise<void> {
  const { rows } = await sql<OldAnswer>`
    select account_id, key, call_id, answer, sealed_answer from idempotency_keys
    where answer is not null or ${isOld(sql`sealed_answer`, content)}`.execute(queries)
  for (const row of rows) {
    const name = { accountId: row.account_id, key: row.key, callId: row.call_id }
    const identity = answerIdentity(name)
    const answer = row.answer ?? openAnswer(row, content, identity)
    if (answer === null) continue
    await sql`
      update idempotency_keys set answer = null, sealed_answer = ${content.seal([answer], identity)}
      where account_id = ${row.account_id} and key = ${row.key} and call_id = ${row.call_id}
        and (answer is not null or sealed_answer is not null)`.execute(queries)
  }
}

type OldAnswer = {
  readonly account_id: string
  readonly key: string
  readonly call_id: string
  readonly answer: string | null
  readonly sealed_answer: Uint8Array | null
}

function openAnswer(
  { sealed_answer: sealed }: OldAnswer,
  content: ContentCipher,
  identity: ContentIdentity,
): string | null {
  try {
    return sealed === null ? null : (content.open(sealed, identity)[0] ?? null)
  } catch (error) {
    if (error instanceof ContentUnavailable) return null
    throw error
  }
}
