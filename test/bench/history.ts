import { performance } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { createLogsStore } from '#src/verified/logs/logs-store.ts'
import { createErasuresStore } from '#src/verified/records/erasures-store.ts'
import { createHistory } from '#src/verified/records/history.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import {
  buildCommit,
  makeLog,
  OPENING,
  openLog,
  stateAfter,
} from '../src/verified/commits/build-commit.ts'
import { startPostgres } from '../support/postgres.ts'

/**
 * `node test/bench/history.ts [--records 1000000]`: the time of a page of the history, of a lookup
 * by hash and of a log proof in a Postgres database that holds many records, against a database
 * that holds few, in turns: a ratio near 1 means that time does not grow. Medians of one caller's
 * calls, service and store, without HTTP.
 */
const SMALL = 1_000
const { values } = parseArgs({ options: { records: { type: 'string', default: '1000000' } } })
const LARGE = Number(values.records)
if (!Number.isSafeInteger(LARGE) || LARGE < SMALL)
  throw new Error(`expected --records from ${SMALL}`)
const BATCH = 5_000
const ROUNDS = 200

/**
 * A database, and samples of its records for later reads. Every tenth record belongs to `account`.
 */
type Grown = {
  readonly database: Database
  readonly account: string
  readonly hashes: string[]
  readonly ids: string[]
  readonly logId: number
}

const server = await startPostgres({ shared_buffers: '512MB', max_wal_size: '8GB' })
const databases: Database[] = []
try {
  await run()
} finally {
  for (const database of databases) await database.close()
  await server.stop()
}

async function run(): Promise<void> {
  const start = performance.now()
  const large = await grow(LARGE)
  const seconds = (performance.now() - start) / 1_000
  console.log(`stored ${LARGE} records in ${seconds.toFixed(0)} s`)
  const small = await grow(SMALL)
  const [few, many] = [subjectsOf(small), subjectsOf(large)]
  for (const [name, runFew] of few) {
    const [ofFew, ofMany] = await medians([runFew, many.get(name) ?? runFew])
    console.log(
      `  ${name.padEnd(34)} ${formatMs(ofFew)} with ${SMALL}, ${formatMs(ofMany)} with ${LARGE}, ratio ${(ofMany / ofFew).toFixed(2)}`,
    )
  }
  await measureProofs(large)
}

/**
 * A new database with `size` records in one log, appended in commits of BATCH, in the committer's
 * way.
 */
async function grow(size: number): Promise<Grown> {
  const database = await openDatabase({ url: await server.createDatabase() })
  databases.push(database)
  const commits = createCommitsStore(database)
  const log = makeLog()
  let state = await openLog(commits, log)
  const grown = {
    database,
    account: crypto.randomUUID(),
    hashes: [],
    ids: [],
    logId: state.logId,
  } as Grown
  const document = crypto.getRandomValues(new Uint8Array(5_000))
  for (let stored = 0, nonce = 0; stored < size; nonce++) {
    const records = Array.from({ length: Math.min(BATCH, size - stored) }, (_, at) =>
      (stored + at) % 10 === 0 ? { accountId: grown.account } : {},
    )
    const commit = buildCommit({ log, state, nonce, records, document })
    await commits.commit(commit)
    state = stateAfter(state, commit)
    stored += records.length
    for (const record of commit.records.filter(
      ({ index }) => index % Math.max(1, size / 1_000) < 1,
    )) {
      grown.hashes.push(record.hash)
      grown.ids.push(record.id)
    }
  }
  return grown
}

/** Proofs in smaller logs: earlier sizes of the same log. */
async function measureProofs({ database, logId }: Grown): Promise<void> {
  const logs = createLogsStore(database)
  const first: number[] = []
  for (const size of [10, 1_000, 100_000, LARGE].filter((one) => one <= LARGE)) {
    const index = () => Math.floor(Math.random() * size)
    const times = await medians([
      () => logs.readInclusion({ logId, index: index(), size }),
      () => logs.readConsistency({ logId, from: 1 + index(), to: size }),
    ])
    if (first.length === 0) first.push(...times)
    const shown = times.map(
      (ms, at) => `${ms.toFixed(2)} ms (${(ms / (first[at] ?? Number.NaN)).toFixed(2)} ×)`,
    )
    console.log(
      `  log of ${String(size).padStart(9)} leaves: inclusion ${shown[0]}, consistency ${shown[1]}, log2 ${Math.log2(size).toFixed(1)}`,
    )
  }
}

function subjectsOf(grown: Grown): ReadonlyMap<string, () => Promise<unknown>> {
  const history = createHistory({
    records: createRecordsStore(grown.database, OPENING.domain.chainId),
    eraseRecords: createErasuresStore(grown.database).eraseRecords,
    isOpen: true,
  })
  const viewer = { accountId: grown.account, seesAll: false }
  const page = { viewer, filter: 'all', limit: 100, cursor: null } as const
  return new Map<string, () => Promise<unknown>>([
    ['newest page of 100', () => history.list(page)],
    ['page of 100 from a random record', () => history.list({ ...page, cursor: pick(grown.ids) })],
    ['newest page of 100, mine', () => history.list({ ...page, filter: 'mine' })],
    ['record by hash', () => history.find(pick(grown.hashes), viewer)],
  ])
}

type Pair = readonly [number, number]

/** Median milliseconds of each run, in turns, after a quarter of the rounds to warm up. */
async function medians(
  runs: readonly [() => Promise<unknown>, () => Promise<unknown>],
): Promise<Pair> {
  const lists: readonly [number[], number[]] = [[], []]
  for (let round = -ROUNDS / 4; round < ROUNDS; round++) {
    for (const at of [0, 1] as const) {
      const start = performance.now()
      await runs[at]()
      if (round >= 0) lists[at].push(performance.now() - start)
    }
  }
  return [medianOf(lists[0]), medianOf(lists[1])]
}

function medianOf(list: readonly number[]): number {
  return list.toSorted((left, right) => left - right)[Math.floor(list.length / 2)] ?? Number.NaN
}

function formatMs(ms: number): string {
  return `${ms.toFixed(2)} ms`
}

function pick(list: readonly string[]): string {
  const value = list[Math.floor(Math.random() * list.length)]
  if (value === undefined) throw new Error('expected something to be stored')
  return value
}
