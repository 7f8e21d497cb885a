import { performance } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { createHistory } from '../../src/services/history.ts'
import { createCommitsStore } from '../../src/stores/commits.ts'
import { type Database, openDatabase } from '../../src/stores/database.ts'
import { createLogsStore } from '../../src/stores/logs.ts'
import { createRecordsStore } from '../../src/stores/records.ts'
import { buildCommit, makeLog, openLog, stateAfter } from '../src/stores/build-commit.ts'
import { startPostgres } from '../support/postgres.ts'

/**
 * `node test/bench/history.ts [--records 1000000]`: what a page of the history, a lookup by hash and a log proof take
 * in a database of Postgres that holds few records, and in the same one when it holds many. The comparator is the
 * small one, in the same run: flat means a ratio near 1. Medians of one caller's calls, service and store, no HTTP.
 */
const SMALL = 1_000
const { values } = parseArgs({ options: { records: { type: 'string', default: '1000000' } } })
const LARGE = Number(values.records)
const BATCH = 5_000
const ROUNDS = 200

/** What was stored, to ask for some of it again. Every tenth record is of `account`. */
type Growth = {
  readonly account: string
  readonly hashes: string[]
  readonly ids: string[]
  logId: number
  size: number
}
const stored: Growth = { account: crypto.randomUUID(), hashes: [], ids: [], logId: 0, size: 0 }

const server = await startPostgres({ shared_buffers: '512MB', max_wal_size: '8GB' })
const database = await openDatabase({ url: server.url })
try {
  await run(database)
} finally {
  await database.close()
  await server.stop()
}

async function run(opened: Database): Promise<void> {
  const grow = await createGrowth(opened)
  await grow(SMALL)
  const small = await measure(opened)
  const start = performance.now()
  await grow(LARGE)
  const seconds = (performance.now() - start) / 1_000
  console.log(`grown from ${SMALL} to ${LARGE} records in ${seconds.toFixed(0)} s`)
  const large = await measure(opened)
  for (const [name, ms] of small) {
    const then = large.get(name) ?? Number.NaN
    console.log(
      `  ${name.padEnd(34)} ${ms.toFixed(2)} ms with ${SMALL}, ${then.toFixed(2)} ms with ${LARGE}, ratio ${(then / ms).toFixed(2)}`,
    )
  }
  await measureProofs(opened)
}

/** Gives what appends records to one log, in commits of BATCH as the committer makes them. */
async function createGrowth(opened: Database): Promise<(size: number) => Promise<void>> {
  const commits = createCommitsStore(opened)
  const log = makeLog()
  let state = await openLog(commits, log)
  stored.logId = state.logId
  let nonce = 0
  const document = crypto.getRandomValues(new Uint8Array(5_000))
  return async (size) => {
    while (stored.size < size) {
      const count = Math.min(BATCH, size - stored.size)
      const records = Array.from({ length: count }, (_, at) =>
        (stored.size + at) % 10 === 0 ? { accountId: stored.account } : {},
      )
      const commit = buildCommit({ log, state, nonce: nonce++, records, document })
      await commits.commit(commit)
      state = stateAfter(state, commit)
      stored.size += count
      for (const record of commit.records.filter(({ index }) => index % Math.max(1, size / 1_000) < 1)) {
        stored.hashes.push(record.hash)
        stored.ids.push(record.id)
      }
    }
  }
}

/** Proofs in logs of other sizes: those that the same log had when it was smaller. */
async function measureProofs(opened: Database): Promise<void> {
  const logs = createLogsStore(opened)
  const { logId } = stored
  const first: number[] = []
  for (const size of [10, 1_000, 100_000, LARGE].filter((one) => one <= LARGE)) {
    const index = () => Math.floor(Math.random() * size)
    const times = [
      await median(() => logs.readInclusion({ logId, index: index(), size })),
      await median(() => logs.readConsistency({ logId, from: 1 + index(), to: size })),
    ]
    if (first.length === 0) first.push(...times)
    const told = times.map(
      (ms, at) => `${ms.toFixed(2)} ms (${(ms / (first[at] ?? Number.NaN)).toFixed(2)} ×)`,
    )
    console.log(
      `  log of ${String(size).padStart(9)} leaves: inclusion ${told[0]}, consistency ${told[1]}, log2 ${Math.log2(size).toFixed(1)}`,
    )
  }
}

async function measure(opened: Database): Promise<ReadonlyMap<string, number>> {
  const history = createHistory({ records: createRecordsStore(opened), isOpen: true })
  const viewer = { accountId: stored.account, seesAll: false }
  const page = { viewer, filter: 'all', limit: 100, cursor: null } as const
  const subjects: Readonly<Record<string, () => Promise<unknown>>> = {
    'newest page of 100': () => history.list(page),
    'page of 100 from a random record': () => history.list({ ...page, cursor: pick(stored.ids) }),
    'newest page of 100, mine': () => history.list({ ...page, filter: 'mine' }),
    'record by hash': () => history.find(pick(stored.hashes), viewer),
  }
  const medians = new Map<string, number>()
  for (const [name, run] of Object.entries(subjects)) medians.set(name, await median(run))
  return medians
}

/** Milliseconds of one run, after a quarter of the runs to warm up. */
async function median(run: () => Promise<unknown>): Promise<number> {
  for (let round = 0; round < ROUNDS / 4; round++) await run()
  const list: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now()
    await run()
    list.push(performance.now() - start)
  }
  return list.toSorted((left, right) => left - right)[ROUNDS / 2] ?? Number.NaN
}

function pick(list: readonly string[]): string {
  const value = list[Math.floor(Math.random() * list.length)]
  if (value === undefined) throw new Error('expected something to be stored')
  return value
}
