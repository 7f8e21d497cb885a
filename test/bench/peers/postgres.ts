import { randomBytes } from 'node:crypto'
import pg from 'pg'
import type { PostgresServer } from '../../support/postgres.ts'
import { compareEncrypted } from '../encrypted.ts'
import { runLoad } from '../load.ts'
import { requestTo, type Target, warmUp } from '../targets.ts'
import type { Stage } from './stage.ts'
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
