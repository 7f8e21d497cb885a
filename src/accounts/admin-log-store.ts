import { hash } from 'node:crypto'
import { sql } from 'kysely'
import { z } from 'zod'
import type { Operator } from '../api/context.ts'
import type { Database } from '../storage/database.ts'

/** An act as it is stored. It holds no secret. */
const entryForm = z.object({
  at: z.int(),
  /** Values of Operator. */
  who: z.string(),
  account_id: z.string().nullable(),
  from: z.string(),
  kind: z.string(),
  target: z.string(),
  details: z.record(z.string(), z.unknown()),
  outcome: z.string(),
})

export const adminAct = z.object({
  position: z.int(),
  /** SHA-256 of the previous hash and this entry, hex. */
  hash: z.string(),
  ...entryForm.shape,
})
export type AdminAct = Readonly<z.output<typeof adminAct>>

/** A null member selects all acts. */
type AdminActQuery = {
  /** Only acts older than this position. */
  readonly before: number | null
  readonly kind: string | null
  /** Unix seconds. Acts at `since` are included, acts at `until` are not. */
  readonly since: number | null
  readonly until: number | null
  readonly limit: number
}

export const adminLogCheck = z.discriminatedUnion('kind', [
  /** Position and hash of the newest act. Store them elsewhere for the next check. */
  z.object({ kind: z.literal('whole'), position: z.int(), hash: z.string() }),
  /** Position of the first act that is missing or was changed. */
  z.object({ kind: z.literal('altered'), position: z.int() }),
  /** All hashes are correct, but the chain does not contain the expected act. */
  z.object({ kind: z.literal('unexpected'), position: z.int(), hash: z.string() }),
])
export type AdminLogCheck = Readonly<z.output<typeof adminLogCheck>>

/** An act to record. Contains no secret. */
export type NewAct = {
  readonly kind: string
  /** Id or name of the object that the act changed. */
  readonly target: string
  readonly details?: Readonly<Record<string, unknown>>
  readonly outcome?: string
}

/**
 * An append-only log in a chain of hashes. Methods throw the driver's error when the database
 * fails.
 */
export type AdminLog = {
  /** Runs an act and records it, in one transaction. */
  record<Outcome>(
    actor: Operator,
    run: (database: Pick<Database, 'queries'>) => Promise<Outcome>,
    trail: (outcome: Outcome) => readonly NewAct[],
  ): Promise<Outcome>
  /** Records an act that changed something outside the database. */
  append(actor: Operator, act: NewAct): Promise<void>
  /** Newest first. */
  list(query: AdminActQuery): Promise<readonly AdminAct[]>
  /**
   * Computes the chain again. `expected` must have been stored elsewhere. Without `expected`, the
   * check does NOT notice if the newest acts are missing, or if the end of the chain was rewritten.
   */
  check(
    expected: { readonly position: number; readonly hash: string } | null,
  ): Promise<AdminLogCheck>
}

const CHECK_ACTS_MAX = 1_000
const FIRST_HASH = new Uint8Array(32)

const SECRET_IN_TEXT = /afd_([a-z2-7]{16})_[A-Za-z0-9_-]{43}/g

/** `now` is Unix milliseconds. */
export function createAdminLog(
  { queries }: Pick<Database, 'queries'>,
  now: () => number = Date.now,
): AdminLog {
  async function append(
    inside: Database['queries'],
    { who, accountId, from }: Operator,
    { kind, target, details = {}, outcome = 'done' }: NewAct,
  ): Promise<void> {
    const at = Math.floor(now() / 1000)
    const act = { at, who, account_id: accountId, from, kind, target, details, outcome }
    const entry = JSON.stringify(act).replaceAll(SECRET_IN_TEXT, 'afd_$1_…')
    await sql`select append_admin_act(${at}::bigint, ${kind}, ${entry})`.execute(inside)
  }

  return {
    record: (actor, run, trail) =>
      queries.transaction().execute(async (inside) => {
        const outcome = await run({ queries: inside })
        for (const act of trail(outcome)) await append(inside, actor, act)
        return outcome
      }),
    append: (actor, act) => append(queries, actor, act),
    async list({ before, kind, since, until, limit }) {
      const { rows } = await sql<ActRow>`
        select position, at, kind, entry, hash from admin_acts
        where (${before}::bigint is null or position < ${before}::bigint)
          and (${kind}::text is null or kind = ${kind}::text)
          and (${since}::bigint is null or at >= ${since}::bigint)
          and (${until}::bigint is null or at < ${until}::bigint)
        order by position desc limit ${limit}::bigint`.execute(queries)
      return rows.map((row) => {
        const entry = parseEntry(row)
        const unreadable = { at: row.at, kind: row.kind, ...UNREADABLE }
        return { position: row.position, hash: hexOf(row.hash), ...(entry ?? unreadable) }
      })
    },
    async check(expected) {
      let previous = FIRST_HASH
      let position = 0
      let isExpected = expected === null
      for (;;) {
        const { rows } = await sql<ActRow>`
          select position, at, kind, entry, hash from admin_acts
          where position > ${position}::bigint order by position limit ${CHECK_ACTS_MAX}::bigint`.execute(
          queries,
        )
        for (const row of rows) {
          const hash = chain(previous, row.entry)
          const entry = parseEntry(row)
          const isWhole =
            row.position === position + 1 &&
            hexOf(hash) === hexOf(row.hash) &&
            entry?.at === row.at &&
            entry.kind === row.kind
          if (!isWhole) return { kind: 'altered', position: position + 1 }
          previous = hash
          position = row.position
          if (expected?.position === position) isExpected = expected.hash === hexOf(hash)
        }
        if (rows.length < CHECK_ACTS_MAX) break
      }
      if (!isExpected) return { kind: 'unexpected', position, hash: hexOf(previous) }
      return { kind: 'whole', position, hash: hexOf(previous) }
    },
  }
}

type ActRow = {
  readonly position: number
  readonly at: number
  readonly kind: string
  readonly entry: string
  readonly hash: Uint8Array
}

const UNREADABLE = {
  who: 'unreadable',
  account_id: null,
  from: '',
  target: '',
  details: {},
  outcome: '',
}

/** Null for an entry that this program did not write. */
function parseEntry({ entry }: ActRow) {
  try {
    return entryForm.parse(JSON.parse(entry))
  } catch {
    return null
  }
}

function chain(previous: Uint8Array, entry: string): Uint8Array<ArrayBuffer> {
  const bytes = Buffer.concat([previous, Buffer.from(entry)])
  return Uint8Array.from(hash('sha256', bytes, 'buffer'))
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex')
}
