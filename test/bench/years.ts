import { rm } from 'node:fs/promises'
import { performance } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { Kysely, sql } from 'kysely'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { openPostgres } from '#src/storage/postgres.ts'
import type { Queries } from '#src/storage/tables.ts'
import { type Affidavit, makeDataFolder, startAffidavit } from '../support/affidavit.ts'
import { VERIFIED_PATH } from '../support/calls.ts'
import { startPostgres } from '../support/postgres.ts'
import { until } from '../support/until.ts'
import { quantile, runLoad } from './load.ts'
import { addYears } from './years-data.ts'

/**
 * `npm run bench -- years --records 1000000`: the whole service on a Postgres that holds three
 * years of records, against the same service and database before the records were added. Figures
 * are measured over HTTP, as for callers, pages and audits. The database grows in the system's temporary folder, and is removed.
 */
const { values } = parseArgs({
  options: {
    records: { type: 'string', default: '1000000' },
    'per-anchor': { type: 'string', default: '10' },
    rounds: { type: 'string', default: '25' },
    'gigabytes-max': { type: 'string', default: '40' },
  },
})
const RECORDS = Number(values.records)
const TEMPLATES = 400
const ROUNDS = Number(values.rounds)
const DAY_SECONDS = 86_400
const WORDS =
  'the evidence of an answer is kept with its hash so that anybody can check later what was asked and by which model under whose key at what time'.split(
    ' ',
  )

const postgres = await startPostgres({ fsync: 'on', shared_buffers: '1GB', max_wal_size: '4GB' })
const dataFolder = await makeDataFolder()
const database = await openDatabase({ url: postgres.url })
/** Without the product's time limits, for statements that the product does not run. */
const unlimited = await openUnlimited()
const service: { now: Affidavit | null } = { now: null }
try {
  await run()
} finally {
  await stop()
  await rm(dataFolder, { recursive: true, force: true })
  await unlimited.close()
  await database.close()
  await postgres.stop()
}

async function run(): Promise<void> {
  await start()
  await makeTemplates()
  await restart('few records')
  const few = { calls: await measureCalls(), reads: await measureReads() }
  await stop()
  await fill()
  await reportSizes(database)
  await restart('many records')
  const many = { calls: await measureCalls(), reads: await measureReads() }
  report(few.calls, many.calls)
  report(few.reads, many.reads)
}

async function openUnlimited(): Promise<Pick<Database, 'queries' | 'close'>> {
  const opened = await openPostgres(postgres.url, () => undefined)
  if (opened.migrationDialect === null) throw new Error('expected a dialect without limits')
  const queries: Queries = new Kysely({ dialect: opened.migrationDialect })
  return {
    queries,
    async close() {
      await queries.destroy()
      await opened.close()
    },
  }
}

async function start(): Promise<void> {
  service.now = await startAffidavit({
    dataFolder,
    logLevel: 'warn',
    variables: { DATABASE_URL: postgres.url },
  })
}

async function stop(): Promise<void> {
  await service.now?.stop()
  service.now = null
}

function running(): Affidavit {
  if (service.now === null) throw new Error('expected a running service')
  return service.now
}

/** Starts three times; the fastest counts, because other load on the machine delays the others. */
async function restart(what: string): Promise<void> {
  const times: number[] = []
  for (let round = 0; round < 3; round++) {
    await stop()
    const begin = performance.now()
    await start()
    times.push(performance.now() - begin)
  }
  console.log(`  start of the service with ${what}: ${Math.min(...times).toFixed(0)} ms`)
}

/** Makes completions of a question with its context, whose anchors are confirmed and proven. */
async function makeTemplates(): Promise<void> {
  const { url, apiKey } = running()
  const post = async (number: number) => {
    const reply = await fetch(url + VERIFIED_PATH, {
      method: 'POST',
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      body: askOf(number),
    })
    if (!reply.ok) throw new Error(`expected a completion, got ${reply.status}`)
    await reply.arrayBuffer()
  }
  for (let number = 0; number < TEMPLATES; number += 8)
    await Promise.all(Array.from({ length: 8 }, (_, at) => post(number + at)))
  await until('anchors are proven', async () => (await countOf('anchor_blocks')) > 20, 60_000)
  await until('a log is attested', async () => (await countOf('head_attestations')) > 0, 60_000)
}

async function countOf(table: string): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*)::bigint as count from ${sql.ref(table)}`.execute(database.queries)
  return rows[0]?.count ?? 0
}

/** A request with about 900 characters of text; the demonstration repeats a part. */
function askOf(number: number): string {
  const text = (length: number, seed: number) =>
    Array.from({ length }, (_, at) => WORDS[(at * at * 7 + seed * 13 + at * seed) % 29]).join(' ')
  const messages = [
    { role: 'system', content: `You are an assistant. ${text(60, 3)}` },
    { role: 'user', content: `Question ${number}: ${text(120, number)}` },
  ]
  return JSON.stringify({ model: 'demo/echo', messages, temperature: 0.2, max_tokens: 400 })
}

async function fill(): Promise<void> {
  const begin = performance.now()
  let reported = 0
  await addYears(unlimited, {
    records: RECORDS,
    recordsPerAnchor: Number(values['per-anchor']),
    databaseBytesMax: Number(values['gigabytes-max']) * 1e9,
    onProgress(stored) {
      if (stored < reported + 1_000_000) return
      reported = stored
      console.log(`  … ${stored} records after ${seconds(begin)} s`)
    },
  })
  console.log(`  added ${RECORDS} records in ${seconds(begin)} s`)
}

/** Bytes on the disk of each growing table, per record. */
async function reportSizes({ queries }: Database): Promise<void> {
  const { rows } = await sql<{ name: string; kind: string; bytes: number }>`
    select t.relname as name, coalesce(i.relname, case when p.part = 0 then 'rows' else 'large values' end) as kind,
      pg_relation_size(coalesce(i.oid, case when p.part = 0 then t.oid else t.reltoastrelid end))::bigint as bytes
    from pg_class t
    cross join (values (0), (1), (2)) p(part)
    left join pg_index x on x.indrelid = t.oid and p.part = 2
    left join pg_class i on i.oid = x.indexrelid
    where t.relkind = 'r' and t.relnamespace = 'public'::regnamespace
      and (p.part < 2 or i.oid is not null) and (p.part <> 1 or t.reltoastrelid <> 0)
    order by pg_total_relation_size(t.oid) desc, p.part, kind`.execute(queries)
  const perRecord = (bytes: number) => (bytes / RECORDS).toFixed(0)
  const all = rows.reduce((sum, { bytes }) => sum + bytes, 0)
  console.log(`  ${(all / 1e9).toFixed(2)} GB, ${perRecord(all)} bytes of disk for a record`)
  for (const table of new Set(rows.map(({ name }) => name))) {
    const parts = rows.filter(({ name }) => name === table)
    const bytes = parts.reduce((sum, part) => sum + part.bytes, 0)
    if (bytes < RECORDS) continue
    const shown = parts
      .filter((part) => part.bytes >= RECORDS)
      .map(({ kind, bytes }) => `${kind} ${perRecord(bytes)}`)
    console.log(`    ${table} ${perRecord(bytes)}: ${shown.join(', ')}`)
  }
}

type Figure = { readonly p50: number; readonly worst: number; readonly rest?: string }
type Figures = ReadonlyMap<string, Figure>

function report(before: Figures, after: Figures): void {
  for (const [name, { p50, worst, rest = '' }] of after) {
    const first = before.get(name)?.p50 ?? Number.NaN
    console.log(
      `  ${name.padEnd(52)} ${first.toFixed(1).padStart(8)} ms, then ${p50.toFixed(1).padStart(8)} ms ` +
        `(${(p50 / first).toFixed(2)} ×), worst ${worst.toFixed(1)} ms${rest}`,
    )
  }
}

async function measureCalls(): Promise<Figures> {
  const figures = new Map<string, Figure>()
  for (const connections of [1, 16]) {
    await load(connections, 4_000)
    const result = await load(connections, 8_000)
    const rest = `; ${result.requestsPerSecond.toFixed(0)} calls/s, ${result.errors} errors`
    figures.set(`verified calls, ${connections} at once`, {
      p50: result.p50Ms,
      worst: result.p99Ms,
      rest,
    })
  }
  return figures
}

function load(connections: number, durationMs: number) {
  const { url, apiKey } = running()
  return runLoad({
    origin: url,
    path: VERIFIED_PATH,
    connections,
    durationMs,
    warmupMs: 0,
    headers: { authorization: `Bearer ${apiKey}` },
    body: askOf(7),
  })
}

/** Reads over HTTP, in turns, each at a random place. */
async function measureReads(): Promise<Figures> {
  const subjects = await readsOf()
  const times = new Map([...subjects.keys()].map((name) => [name, [] as number[]]))
  for (let round = -3; round < ROUNDS; round++)
    for (const [name, pathOf] of subjects) {
      const path = pathOf(Math.abs(round) * 31 + 7)
      const begin = performance.now()
      await get(path)
      if (round >= 0) times.get(name)?.push(performance.now() - begin)
    }
  return new Map(
    [...times].map(([name, list]) => {
      list.sort((one, other) => one - other)
      return [name, { p50: quantile(list, 0.5), worst: list.at(-1) ?? Number.NaN }]
    }),
  )
}

async function get(path: string): Promise<string> {
  const { url, apiKey } = running()
  const reply = await fetch(url + path, { headers: { authorization: `Bearer ${apiKey}` } })
  const text = await reply.text()
  if (!reply.ok) throw new Error(`${path}: ${reply.status} ${text.slice(0, 300)}`)
  return text
}

type PathOf = (random: number) => string

async function readsOf(): Promise<ReadonlyMap<string, PathOf>> {
  const [mine] = JSON.parse(await get(`${VERIFIED_PATH}?limit=1`)).completions
  const model = JSON.parse(askOf(0)).model
  const places = await samplePlaces(null)
  const own = await samplePlaces(mine.hash)
  const pick = (list: readonly Place[], random: number) =>
    list[random % list.length] ?? { id: '', hash: '', notary: '', index: 0, size: 1, at: 0 }
  const history = (query: string) => () => `${VERIFIED_PATH}?${query}`
  const from = (list: readonly Place[], query: string) => (random: number) =>
    `${VERIFIED_PATH}?cursor=${pick(list, random).id}&${query}`
  const ofLog = (rest: (place: Place) => string) => (random: number) => {
    const place = pick(places, random)
    return `/v1/log/${place.notary}/${rest(place)}`
  }
  const week = 7 * DAY_SECONDS
  return new Map<string, PathOf>([
    ['history, newest page', history('limit=100')],
    ['history, all accounts, newest page', history('limit=100&filter=all')],
    ['history, from anywhere', from(own, 'limit=100')],
    ['history, all accounts, from anywhere', from(places, 'limit=100&filter=all')],
    ['history, model that all have', history(`limit=100&model=${model}`)],
    ['history, model that none has', history('limit=100&model=absent')],
    ['history, all accounts, model that none has', history('limit=100&filter=all&model=absent')],
    ['history, outcome that none has', history('limit=100&outcome=upstream_error')],
    ['history, encrypted, none', history('limit=100&encrypted=true')],
    [
      'history, a week of the past',
      (random) => {
        const { at } = pick(own, random)
        return `${VERIFIED_PATH}?limit=100&since=${at - week}&until=${at + 1}`
      },
    ],
    ['history, text that none has', history('limit=100&q=nowhere%20to%20be%20found')],
    ['completion by hash', (random) => `${VERIFIED_PATH}/${pick(places, random).hash}`],
    ['public evidence by hash', (random) => `/v1/evidence/${pick(places, random).hash}`],
    ['logs', () => '/v1/log'],
    ['heads, first 100', ofLog(() => 'heads?limit=100')],
    ['heads, 100 from anywhere', ofLog(({ index }) => `heads?limit=100&cursor=${index}`)],
    ['heads, newest 100', ofLog(() => 'heads?limit=100&order=desc')],
    ['leaves, 1000 from anywhere', ofLog(({ index }) => `leaves?start=${index}`)],
    ['inclusion proof', ofLog(({ index }) => `inclusion?index=${index}`)],
    ['consistency proof', ofLog(({ index }) => `consistency?from=${index + 1}`)],
    ['records of a log, 100 from anywhere', ofLog(({ index }) => `records?start=${index}`)],
    [
      'usage of 90 days',
      () =>
        `/v1/dashboard/usage?per=day&since=${Math.floor(Date.now() / 1_000) - 89 * DAY_SECONDS}`,
    ],
    ['usage of a week by hours', () => '/v1/dashboard/usage?per=hour'],
    ['waiting anchors', () => '/v1/admin/anchors'],
    ['readiness', () => '/readyz'],
  ])
}

type Place = {
  readonly id: string
  readonly hash: string
  readonly notary: string
  readonly index: number
  /** When the record was made, Unix seconds. */
  readonly at: number
}

/** Random records: of all accounts, or of the account whose record has this hash. */
async function samplePlaces(hash: string | null): Promise<readonly Place[]> {
  const isMine =
    hash === null
      ? sql`true`
      : sql`r.account_id = (
          select account_id from records where hash = decode(${hash.replace(/^0x/, '')}, 'hex') limit 1)`
  const { rows } = await sql<Place>`
    select r.id, encode(r.hash, 'hex') as hash, l.notary, r.index, r.created_at as at
    from generate_series(1, 60) g
    cross join lateral (
      select (random() * (select max(position) from records))::bigint + g * 0 as position) p
    cross join lateral (
      select * from records r where r.position >= p.position and ${isMine} order by r.position limit 1) r
    join logs l on l.id = r.log_id`.execute(database.queries)
  return rows
}

function seconds(begin: number): string {
  return ((performance.now() - begin) / 1_000).toFixed(1)
}
