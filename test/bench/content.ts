import { randomBytes } from 'node:crypto'
import { performance } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { sql } from 'kysely'
import { type ContentCipher, createContentCipher } from '#src/storage/content-cipher.ts'
import { parseContentKeys } from '#src/storage/content-keys.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { type CommitsStore, createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { createErasureSweeper } from '#src/verified/records/erasures.ts'
import { createErasuresStore } from '#src/verified/records/erasures-store.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import { createContentOperations } from '#src/verified/records/reencryption-store.ts'
import {
  buildCommit,
  CREATED_AT,
  makeLog,
  OPENING,
  openLog,
  stateAfter,
} from '../src/verified/commits/build-commit.ts'
import { startPostgres } from '../support/postgres.ts'

/**
 * `node test/bench/content.ts [--records 4000]`: what encryption of stored content costs a commit
 * and a lookup on Postgres, in turns with the same in the clear; the size of a record on the disk;
 * the speed of encrypting and erasing stored content. Medians, one caller, the store alone.
 */
const { values } = parseArgs({ options: { records: { type: 'string', default: '4000' } } })
const RECORDS = Number(values.records)
const BATCHES = [1, 16] as const
const ROUNDS = 150

const keys = parseContentKeys(randomBytes(32).toString('hex'))
if (typeof keys === 'string') throw new Error(keys)
const cipher = createContentCipher(keys)
/**
 * About as long as a question with its context, and its answer; half of the text can be compressed.
 */
const TEXT = `${randomBytes(768).toString('base64')}${'the quick brown fox jumps '.repeat(40)}`
const CONTENT = { request: `{"q":"${TEXT}"}`, response: `{"a":"${TEXT}"}` }

const server = await startPostgres({ fsync: 'on' })
const databases: Database[] = []
try {
  await measureCipher()
  await measureStores()
} finally {
  for (const database of databases) await database.close()
  await server.stop()
}

function measureCipher(): void {
  for (const length of [2_000, 20_000, 1_000_000]) {
    const parts = [CONTENT.request.slice(0, 1_000), 'x'.repeat(length)]
    const identity = ['records', 'id', 'hash'] as const
    const sealed = cipher.seal(parts, identity)
    const seal = medianOf(() => void cipher.seal(parts, identity))
    const open = medianOf(() => void cipher.open(sealed, identity))
    console.log(
      `  ${String(length + 1_000).padStart(9)} bytes: encrypted in ${seal} ms, decrypted in ${open} ms`,
    )
  }
}

function medianOf(run: () => void): string {
  const times = Array.from({ length: ROUNDS }, () => {
    const start = performance.now()
    run()
    return performance.now() - start
  })
  return median(times).toFixed(4)
}

type Subject = { readonly name: string; readonly database: Database; readonly grow: Grow }
type Grow = (count: number) => Promise<string>

async function measureStores(): Promise<void> {
  const subjects = [await openSubject('in the clear', null), await openSubject('encrypted', cipher)]
  const bare = await openSubject('in the clear, without the index of erasure', null)
  await sql`drop index records_content`.execute(bare.database.queries)
  for (const batch of BATCHES)
    report(
      `commit of ${batch}`,
      await inTurns([...subjects, bare], async ({ grow }) => void (await grow(batch))),
    )
  const hashes: string[] = []
  for (const { grow } of subjects) hashes.push(await grow(1))
  report(
    'record by hash',
    await inTurns(subjects, async ({ database }, at) => {
      await createRecordsStore(database, OPENING.domain.chainId).findByHash(hashes[at] ?? '', {
        accountId: null,
      })
    }),
  )
  for (const { grow } of subjects)
    for (let left = RECORDS; left > 0; left -= 100) await grow(Math.min(100, left))
  for (const { name, database } of subjects) await reportSize(name, database)
  const [plain] = subjects
  if (plain !== undefined) await measureUpkeep({ ...plain.database, content: cipher })
}

async function openSubject(name: string, content: ContentCipher | null): Promise<Subject> {
  const database = await openDatabase({ url: await server.createDatabase() }, undefined, content)
  databases.push(database)
  return { name, database, grow: await createGrowth(createCommitsStore(database)) }
}

/**
 * Gives a function that commits `count` records to a new log, and returns the hash of the last one.
 */
async function createGrowth(commits: CommitsStore): Promise<Grow> {
  const log = makeLog()
  let state = await openLog(commits, log)
  let nonce = 0
  const accountId = crypto.randomUUID()
  const document = randomBytes(5_000)
  return async (count) => {
    const records = Array.from({ length: count }, () => ({ ...CONTENT, accountId }))
    const commit = buildCommit({ log, state, nonce, records, document })
    await commits.commit(commit)
    nonce++
    state = stateAfter(state, commit)
    return commit.records.at(-1)?.hash ?? ''
  }
}

/** Median milliseconds of each subject's runs; the subjects take turns. */
async function inTurns(
  subjects: readonly Subject[],
  run: (subject: Subject, at: number) => Promise<void>,
): Promise<readonly number[]> {
  const times = subjects.map((): number[] => [])
  for (let round = -20; round < ROUNDS; round++)
    for (const [at, subject] of subjects.entries()) {
      const start = performance.now()
      await run(subject, at)
      if (round >= 0) times[at]?.push(performance.now() - start)
    }
  return times.map(median)
}

function median(times: readonly number[]): number {
  return times.toSorted((one, other) => one - other)[times.length >> 1] ?? Number.NaN
}

function report(name: string, medians: readonly number[]): void {
  const [clear = Number.NaN, sealed = Number.NaN, bare] = medians
  const rest =
    bare === undefined
      ? ''
      : `; without the index ${bare.toFixed(2)} ms, ratio ${(clear / bare).toFixed(2)}`
  console.log(
    `  ${name.padEnd(16)} ${clear.toFixed(2)} ms in the clear, ${sealed.toFixed(2)} ms encrypted, ratio ${(sealed / clear).toFixed(2)}${rest}`,
  )
}

async function reportSize(name: string, { queries }: Database): Promise<void> {
  await sql`vacuum full records`.execute(queries)
  const { rows } = await sql<{ bytes: number; index_bytes: number; count: number }>`
    select pg_total_relation_size('records')::bigint as bytes,
      pg_relation_size('records_content')::bigint as index_bytes,
      (select count(*) from records)::bigint as count`.execute(queries)
  const { bytes = 0, index_bytes: index = 0, count = 1 } = rows[0] ?? {}
  console.log(
    `  ${name}: ${Math.round(bytes / count)} bytes of a record in its table, ${Math.round(index / count)} of them in records_content`,
  )
}

/** Encrypts all stored plain content, then erases it by a retention rule. */
async function measureUpkeep(database: Database): Promise<void> {
  const { encrypt } = createContentOperations(database)
  let [start, encrypted] = [performance.now(), 0]
  for (let position: number | null = 0; position !== null; ) {
    const batch: Awaited<ReturnType<typeof encrypt>> = await encrypt(position)
    if (batch === 'no_key') throw new Error('expected a key')
    encrypted += batch.encrypted
    position = batch.next
  }
  console.log(`  encrypted ${rate(encrypted, start)} stored records a second`)
  const day = 86_400
  const store = createErasuresStore(database, () => CREATED_AT + 1_000 * day)
  const log = { info: () => undefined, error: () => undefined }
  const sweeper = createErasureSweeper({ store, retentionDays: 30, log })
  start = performance.now()
  const erased = await sweeper.sweep(new AbortController().signal)
  console.log(`  erased the content of ${rate(erased, start)} records a second`)
}

function rate(count: number, startMs: number): string {
  return `${Math.round((count * 1_000) / (performance.now() - startMs))} (of ${count})`
}
