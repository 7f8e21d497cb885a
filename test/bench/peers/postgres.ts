import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { PostgresServer } from '../../support/postgres.ts'
import { readMetrics } from '../../support/read-metrics.ts'
import { runCli } from '../../support/run-cli.ts'
import { until } from '../../support/until.ts'
import { compareEncrypted } from '../encrypted.ts'
import { runLoad } from '../load.ts'
import { keyHeaders, requestTo, type Target, warmUp } from '../targets.ts'
import { ENCLAVE, GATEWAY, pidOf, residentBytes, type Stage } from './stage.ts'
import { type Figures, median } from './table.ts'

const WARMUP_REQUESTS = 2_000
const TURNS = 5
const TURN_CALLS = 100

/** Verified calls against bare inserts of the same size, on one Postgres with fsync. */
export async function measureInsert(stage: Stage, postgres: PostgresServer): Promise<Figures> {
  const client = new pg.Client({ connectionString: postgres.url })
  await client.connect()
  try {
    await warmUp(stage.verified, { requests: WARMUP_REQUESTS, stream: false })
    const [before, calls] = [await countStored(client), await callInTurn(stage.verified)]
    const bytes = Math.round((await countStored(client)) - before) / TURN_CALLS
    await client.query('create table bare_inserts (content bytea not null)')
    const insertMs: number[] = []
    const callMs: number[] = []
    const providerMs: number[] = []
    for (let turn = 0; turn < TURNS; turn += 1) {
      insertMs.push(await insertInTurn(client, Math.round(bytes)))
      callMs.push(await callInTurn(stage.verified))
      providerMs.push(await callInTurn(stage.provider))
    }
    await client.query('drop table bare_inserts')
    const [insert, call, provider] = [median(insertMs), median(callMs), median(providerMs)]
    console.log(
      `  a verified call ${call.toFixed(2)} ms (first turn ${calls.toFixed(2)}), provider ${provider.toFixed(2)}, bare durable insert of ${bytes.toFixed(0)} B ${insert.toFixed(2)}`,
    )
    return { 'postgres-insert': call / insert }
  } finally {
    await client.end()
  }
}

/** Bytes of all rows of the service's tables. */
async function countStored(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ name: string }>(
    `select format('%I.%I', schemaname, relname) as name from pg_stat_user_tables`,
  )
  let bytes = 0
  for (const { name } of rows) {
    const [row] = (await client.query(`select sum(pg_column_size(t.*)) as bytes from ${name} t`))
      .rows
    bytes += Number(row?.bytes ?? 0)
  }
  return bytes
}

async function callInTurn(target: Target): Promise<number> {
  const result = await runLoad({
    ...requestTo(target, { words: 8, stream: false }),
    connections: 1,
    warmupMs: 0,
    durationMs: 30_000,
    requestsMax: TURN_CALLS,
  })
  if (result.errors > 0) throw new Error(`${result.errors} calls of ${target.name} failed`)
  return result.p50Ms
}

/** One statement with one row; its transaction is durable when it is answered. */
async function insertInTurn(client: pg.Client, bytes: number): Promise<number> {
  const took: number[] = []
  for (let at = 0; at < TURN_CALLS; at += 1) {
    const values = [randomBytes(bytes)]
    const start = performance.now()
    await client.query({
      name: 'bare',
      text: 'insert into bare_inserts (content) values ($1)',
      values,
    })
    took.push(performance.now() - start)
  }
  return median(took)
}

/** Encrypted calls against plain verified ones. */
export async function measureEncrypted({ service }: Stage): Promise<Figures> {
  return { encrypted: await compareEncrypted(service) }
}

const WAITING = 1_000
const WAITING_WARMUP_REQUESTS = 200
const WAITING_TIMEOUT_MS = 50_000

/** Memory of completions that wait for their commit, with their callers. */
export async function measureWaiting(stage: Stage, postgres: PostgresServer): Promise<Figures> {
  const { service, verified } = stage
  const pids = { gateway: pidOf(service, GATEWAY), enclave: pidOf(service, ENCLAVE) }
  await warmUp(verified, { requests: WAITING_WARMUP_REQUESTS, stream: false })
  await sleep(1_000)
  const idle = { gateway: residentBytes(pids.gateway), enclave: residentBytes(pids.enclave) }
  const { body, headers } = requestTo(verified, { words: 8, stream: false })
  const init = { method: 'POST', body, headers: { ...headers, 'content-type': 'application/json' } }
  let refused = 0
  const locked = await holdCommits(postgres.url)
  const calls = Array.from({ length: WAITING }, async () => {
    const answer = await fetch(verified.origin + verified.path, init)
    await answer.arrayBuffer()
    if (answer.status !== 200) refused += 1
  })
  try {
    await until(
      'all calls wait for their commit',
      async () => (await countWaiting(service)) === WAITING,
      WAITING_TIMEOUT_MS,
    )
    const kilobytes = (name: 'gateway' | 'enclave') =>
      (residentBytes(pids[name]) - idle[name]) / 1_000 / WAITING
    const figures = { gateway: kilobytes('gateway'), enclave: kilobytes('enclave') }
    const refusedHeld = refused
    await locked.release()
    await Promise.all(calls)
    if (refused > 0)
      throw new Error(
        `${refused} of ${WAITING} calls were not answered with proof, ${refusedHeld} of them while commits were held`,
      )
    console.log(
      `  ${WAITING} verified calls at once while no commit is done, all answered with proof then; ` +
        `KB each: gateway ${figures.gateway.toFixed(0)}, enclave ${figures.enclave.toFixed(0)}`,
    )
    return { 'waiting-gateway': figures.gateway, 'waiting-enclave': figures.enclave }
  } finally {
    await locked.release()
  }
}

async function countWaiting({ metricsUrl }: Stage['service']): Promise<number> {
  const metrics = readMetrics(await (await fetch(metricsUrl)).text())
  return metrics.find(({ name }) => name === 'affidavit_commit_waiting_calls')?.value ?? 0
}

/** Blocks all commits, but no reads, until it is released. */
async function holdCommits(url: string): Promise<{ release(): Promise<void> }> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query('begin; lock table logs in exclusive mode')
  let released: Promise<void> | null = null
  return {
    release: () => {
      released ??= client.end()
      return released
    },
  }
}

const HEAVY_CONNECTIONS = 256
const BESIDE_MS = 6_000

/**
 * 99th percentile of a caller with one call at a time, alone and beside another caller with 256.
 */
export async function measureLight({ service, verified }: Stage): Promise<Figures> {
  const { dataFolder } = service
  const variables = { DATA_DIR: dataFolder }
  const words = ['keys', 'create', '--account', 'light', '--scopes', 'inference']
  const { code, stdout, stderr } = await runCli(words, { variables })
  if (code !== 0) return { 'light-p99': `no key could be made: ${stderr.slice(0, 100)}` }
  const light = { ...verified, headers: keyHeaders(stdout.trim()) }
  const times = { warmupMs: 500, durationMs: BESIDE_MS }
  const request = { words: 8, stream: false }
  const alone = await runLoad({ ...requestTo(light, request), connections: 1, ...times })
  const [beside, heavy] = await Promise.all([
    runLoad({ ...requestTo(light, request), connections: 1, ...times }),
    runLoad({ ...requestTo(verified, request), connections: HEAVY_CONNECTIONS, ...times }),
  ])
  console.log(
    `  light caller alone p50 ${alone.p50Ms.toFixed(1)} p99 ${alone.p99Ms.toFixed(1)} ms; beside ${HEAVY_CONNECTIONS} calls at once ` +
      `p50 ${beside.p50Ms.toFixed(1)} p99 ${beside.p99Ms.toFixed(1)} ms (theirs ${heavy.p50Ms.toFixed(1)} and ${heavy.p99Ms.toFixed(1)}); errors ${alone.errors + beside.errors + heavy.errors}`,
  )
  return { 'light-p99': beside.p99Ms }
}
