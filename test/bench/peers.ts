import { parseArgs } from 'node:util'
import { makeDataFolder } from '../support/affidavit.ts'
import { type PostgresServer, startPostgres } from '../support/postgres.ts'
import { compareAudit } from './audit.ts'
import { measureCalls } from './peers/calls.ts'
import { measureEvidence, measureStart, measureVerify } from './peers/commands.ts'
import { installPortkey } from './peers/portkey.ts'
import { measureEncrypted, measureInsert } from './peers/postgres.ts'
import { type Stage, startStage } from './peers/stage.ts'
import {
  measureChunks,
  measureFirstToken,
  measureOpen,
  measureOpenMemory,
  measurePaced,
  PACE_MS,
  SLOW_PACE_MS,
} from './peers/streams.ts'
import { type Figures, type Row, writeTable } from './peers/table.ts'

/**
 * `npm run bench -- peers [--runs 3] [--rows a,b]`: the speed of the service beside its peers, each
 * figure with its aim. A figure is the median of the runs; in a run the sides take turns. Figures
 * are ratios to a peer's figure of the same run, or costs that do not depend on the load.
 */
const ROWS: readonly Row[] = [
  row('verified-portkey', "verified, 32 connections, of Portkey's unverified forward", '×', {
    atLeast: 1,
  }),
  row('verified-cpu', 'verified, CPU of a call, all processes', 'ms', { atMost: 1.1 }),
  row('verified-warm', 'verified, 1 connection, p50 above the provider, warm', 'ms', { atMost: 3 }),
  row('verified-first', 'the same, the first 200 calls', 'ms', { atMost: 6 }),
  row('postgres-insert', 'verified on Postgres with fsync, 1 connection, of a bare insert', '×', {
    atMost: 2,
  }),
  row('plain-forwarder', 'plain chat, 32 connections, of the bare forwarder', '×', {
    atLeast: 0.6,
  }),
  row('plain-two', 'the same, of two forwarders in a row', '×', { atLeast: 1 }),
  row('plain-first', 'plain chat, 1 connection, added to the first token', 'ms', { atMost: 1.5 }),
  row('open-streams', 'verified streams open at once', '', { atLeast: 5_000 }, 0),
  row('open-gateway', 'memory of each, gateway', 'KB', { atMost: 100 }, 0),
  row('open-enclave', 'memory of each, enclave', 'KB', { atMost: 100 }, 0),
  row('open-carried', 'as many as this machine carries at 20 chunks/s', '', null, 0),
  row('chunks-verified', 'chunks/s of 8 verified streams, of the forwarder', '×', {
    atLeast: 0.6,
  }),
  row('chunks-plain', 'chunks/s of 8 plain streams, of the forwarder', '×', { atLeast: 0.6 }),
  row('paced-cpu', "CPU of 500 paced verified streams, of the forwarder's", '×', { atMost: 2.5 }),
  row('encrypted', 'encrypted, of plain verified', '×', { atLeast: 0.85 }),
  row('bundle-cold', 'bundle verified, cold, of its signatures', '×', { atMost: 1.1 }),
  row('audit', 'audit, of bare recoveries', '×', { atMost: 2 }),
  row('start', '`npm start` to ready, not the first time', 's', { atMost: 2 }),
  row('verify-command', '`affidavit verify` from the shell', 's', { atMost: 0.4 }),
  row('enclave-rate', 'completions/s of the enclave on one core', '', null, 0),
]

const CALL_ROWS = [
  'verified-portkey',
  'verified-cpu',
  'verified-warm',
  'verified-first',
  'plain-forwarder',
  'plain-two',
  'enclave-rate',
]
const OPEN_ROWS = ['open-streams', 'open-gateway', 'open-enclave']

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '3' },
    rows: { type: 'string', default: ROWS.map(({ name }) => name).join(',') },
  },
})
const runCount = Number(values.runs)
const wanted = new Set(values.rows.split(','))
const unknown = [...wanted].filter((name) => !ROWS.some((each) => each.name === name))
if (!(Number.isInteger(runCount) && runCount > 0) || unknown.length > 0) {
  const names = ROWS.map(({ name }) => name).join(', ')
  console.error(
    unknown.length > 0
      ? `unknown row ${unknown.join(', ')}; there are ${names}`
      : `--runs: expected a number from 1, got ${values.runs}`,
  )
  process.exit(2)
}

const isWanted = (...names: readonly string[]) => names.some((name) => wanted.has(name))
const portkey = isWanted('verified-portkey') ? await installPortkey() : null
const chosen = ROWS.filter(({ name }) => wanted.has(name))
const runs: Figures[] = []
try {
  while (runs.length < runCount) {
    console.log(`run ${runs.length + 1} of ${runCount}`)
    runs.push(await runOnce())
    // The results so far, in case a long run is stopped.
    if (runs.length < runCount) console.log(`\n${writeTable(chosen, runs)}\n`)
  }
} finally {
  await portkey?.remove()
}
console.log(`\n${writeTable(chosen, runs)}`)

async function runOnce(): Promise<Figures> {
  const figures: Record<string, number | string> = {}
  const take = async (measure: () => Promise<Figures>, ...names: readonly string[]) => {
    if (!isWanted(...names)) return
    try {
      Object.assign(figures, await measure())
    } catch (error) {
      const reason = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)
      console.log(`  ${names.join(', ')}: ${reason}`)
      for (const name of names) figures[name] = `not measured: ${reason}`
    }
  }
  await take(measureVerify, 'verify-command')
  await take(measureStart, 'start')
  await take(measureEvidence, 'bundle-cold')
  if (isWanted(...CALL_ROWS, 'audit', 'chunks-verified', 'chunks-plain'))
    await onStage(
      { portkey: portkey?.program ?? null, dataFolder: await makeDataFolder() },
      async (stage) => {
        const noPortkey = `not measured: ${portkey?.reason}`
        await take(() => measureCalls(stage, { noPortkey }), ...CALL_ROWS)
        await take(() => measureChunks(stage), 'chunks-verified', 'chunks-plain')
        await take(async () => ({ audit: await compareAudit(stage.service) }), 'audit')
      },
    )
  if (isWanted('plain-first', 'paced-cpu', 'open-carried'))
    await onStage({ variables: { DEMO_DELAY_MS: String(PACE_MS) } }, async (stage) => {
      await take(() => measureFirstToken(stage), 'plain-first')
      await take(() => measurePaced(stage), 'paced-cpu')
      await take(() => measureOpen(stage), 'open-carried')
    })
  if (isWanted(...OPEN_ROWS))
    // An agent would find this provider too slow for its node.
    await onStage({ isPlain: false, variables: { DEMO_DELAY_MS: String(SLOW_PACE_MS) } }, (stage) =>
      take(() => measureOpenMemory(stage), ...OPEN_ROWS),
    )
  if (isWanted('postgres-insert', 'encrypted'))
    await onPostgres(async (stage, postgres) => {
      await take(() => measureInsert(stage, postgres), 'postgres-insert')
      await take(() => measureEncrypted(stage), 'encrypted')
    })
  return figures
}

async function onStage(
  options: Parameters<typeof startStage>[0],
  run: (stage: Stage) => Promise<void>,
): Promise<void> {
  const stage = await startStage(options)
  try {
    await run(stage)
  } finally {
    await stage.stop()
    await stage.service.remove()
  }
}

async function onPostgres(
  run: (stage: Stage, postgres: PostgresServer) => Promise<void>,
): Promise<void> {
  const postgres = await startPostgres({ fsync: 'on' })
  try {
    await onStage({ variables: { DATABASE_URL: postgres.url, METRICS_PORT: '0' } }, (stage) =>
      run(stage, postgres),
    )
  } finally {
    await postgres.stop()
  }
}

function row(name: string, what: string, unit: string, aim: Row['aim'], digits = 2): Row {
  return { name, what, unit, digits, aim }
}
