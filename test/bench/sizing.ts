import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { Pool } from 'undici'
import { type Deployment, startDeployment } from '../support/deployment/deployment.ts'
import { runLoad } from './load.ts'
import { listTree, readCpuSeconds } from './processes.ts'

/**
 * `node test/bench/sizing.ts`: the resources that a machine needs: CPU of a call, disk of a
 * completion, memory by body size and concurrent calls, descriptors of connections and calls.
 * Gateway, enclave and Postgres are separate processes. The provider repeats at most 200
 * characters, after 30 ms.
 */
const KINDS = ['whole', 'streamed', 'plain'] as const
const CALLS = 600
const CONNECTIONS = 16
const STORED_CALLS = 200
const STORED_CHARACTERS = [50, 2_000, 20_000]
/** KiB of a body, and concurrent calls. */
const BODIES = [
  [64, 1],
  [64, 16],
  [1024, 1],
  [1024, 16],
  [8192, 1],
  [8192, 4],
] as const
const CONNECTED = 200

const deployment = await startDeployment({ agents: 1 })
const database = new pg.Client({ connectionString: deployment.postgres.url })
await database.connect()
try {
  for (const kind of KINDS) await measureCpu(deployment, kind)
  for (const characters of STORED_CHARACTERS) await measureDisk(deployment, characters)
  await measureDescriptors(deployment)
  for (const [kilobytes, atOnce] of BODIES)
    await measureMemory(deployment, kilobytes * 1024, atOnce)
} finally {
  await database.end()
  await deployment.stop()
}

function post(path: string, body: string) {
  const authorization = `Bearer ${deployment.key}`
  const headers = { 'content-type': 'application/json', authorization }
  return { method: 'POST', path, body, headers } as const
}

function bodyOf(kind: (typeof KINDS)[number], content: string): string {
  const model = kind === 'plain' ? deployment.nodeModel : 'demo/echo'
  const stream = kind === 'streamed'
  return JSON.stringify({ model, stream, messages: [{ role: 'user', content }] })
}

function pathOf(kind: (typeof KINDS)[number]): string {
  return kind === 'plain' ? '/v1/chat/completions' : '/v1/verified/chat/completions'
}

/** Text that hardly compresses. */
function textOf(characters: number): string {
  return randomBytes(characters).toString('base64').slice(0, characters)
}

function partsOf({ gateways, enclaves, postgres }: Deployment): ReadonlyMap<string, number> {
  return new Map([
    ['gateway', gateways[0]?.program.pid ?? 0],
    ['enclave', enclaves[0]?.program.pid ?? 0],
    ['postgres', postgres.pid()],
  ])
}

/** CPU milliseconds of a call in each part, after as many calls to warm up. */
async function measureCpu(service: Deployment, kind: (typeof KINDS)[number]): Promise<void> {
  const plan = {
    origin: service.gateways[0]?.origin ?? '',
    path: pathOf(kind),
    headers: { authorization: `Bearer ${service.key}` },
    body: bodyOf(kind, 'Say in one sentence why evidence matters.'),
    connections: CONNECTIONS,
    warmupMs: 0,
    durationMs: 600_000,
    requestsMax: CALLS,
  }
  await runLoad(plan)
  const read = () =>
    [...partsOf(service)].map(([name, pid]) => {
      const seconds = [...readCpuSeconds(listTree(pid)).values()]
      return { name, seconds: seconds.reduce((sum, value) => sum + value, 0) }
    })
  const before = read()
  const { errors } = await runLoad(plan)
  const parts = read().map(({ name, seconds }, at) => {
    const used = seconds - (before[at]?.seconds ?? 0)
    return `${name} ${((used / CALLS) * 1_000).toFixed(2)} ms`
  })
  console.log(`cpu of a call    ${kind.padEnd(9)} ${parts.join(', ')}; ${errors} errors`)
}

/** The growth of tables and indices, and of the write-ahead log, per completion. */
async function measureDisk(service: Deployment, characters: number): Promise<void> {
  const read = async () => {
    await database.query('checkpoint')
    const { rows } = await database.query<{ tables: string; wal: string }>(
      `select sum(pg_total_relation_size(oid)) as tables,
        pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') as wal
       from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace`,
    )
    return { tables: Number(rows[0]?.tables), wal: Number(rows[0]?.wal) }
  }
  const before = await read()
  const pool = new Pool(service.gateways[0]?.origin ?? '', { connections: CONNECTIONS })
  const send = async () => {
    const reply = await pool.request(post(pathOf('whole'), bodyOf('whole', textOf(characters))))
    await reply.body.dump()
    if (reply.statusCode !== 200) throw new Error(`expected an answer, got ${reply.statusCode}`)
  }
  for (let sent = 0; sent < STORED_CALLS; sent += CONNECTIONS)
    await Promise.all(Array.from({ length: CONNECTIONS }, send))
  await pool.close()
  const after = await read()
  const calls = Math.ceil(STORED_CALLS / CONNECTIONS) * CONNECTIONS
  const perCall = (bytes: number) => `${(bytes / calls / 1_000).toFixed(1)} KB`
  console.log(
    `disk             request of ${String(characters).padStart(6)} characters: ` +
      `tables and indices ${perCall(after.tables - before.tables)}, write-ahead log ${perCall(after.wal - before.wal)}`,
  )
}

/** Open descriptors of gateway and enclave: idle, with connections, with running calls. */
async function measureDescriptors(service: Deployment): Promise<void> {
  const parts = [...partsOf(service)].filter(([name]) => name !== 'postgres')
  const count = () => parts.map(([name, pid]) => `${name} ${countDescriptors(pid)}`).join(', ')
  console.log(`descriptors      idle: ${count()}`)
  const pool = new Pool(service.gateways[0]?.origin ?? '', {
    connections: CONNECTED,
    headersTimeout: 0,
    bodyTimeout: 0,
  })
  const all = (what: () => Promise<unknown>) => Promise.all(Array.from({ length: CONNECTED }, what))
  await all(async () => (await pool.request({ method: 'GET', path: '/readyz' })).body.dump())
  console.log(`descriptors      ${CONNECTED} idle callers: ${count()}`)
  await service.provider.way.behave('hang')
  const calls = all(async () => {
    const reply = await pool.request(post(pathOf('whole'), bodyOf('whole', 'hello')))
    await reply.body.dump()
  })
  // Until the enclave times out at the provider, and calls begin to end.
  const highest = new Map<string, number>()
  for (let isOver = false; !isOver; ) {
    for (const [name, pid] of parts)
      highest.set(name, Math.max(highest.get(name) ?? 0, countDescriptors(pid)))
    isOver = await Promise.race([calls.then(() => true), sleep(25).then(() => false)])
  }
  const counts = [...highest].map(([name, most]) => `${name} ${most}`).join(', ')
  console.log(`descriptors      ${CONNECTED} calls under way: ${counts} at most`)
  await service.provider.way.behave('pass')
  await pool.close()
}

function countDescriptors(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length
}

/** Highest resident memory of gateway and enclave; both are started for this measurement. */
async function measureMemory(service: Deployment, bytes: number, atOnce: number): Promise<void> {
  const [gateway] = service.gateways
  if (gateway === undefined) throw new Error('expected a gateway')
  await gateway.program.end('SIGTERM')
  gateway.program.start()
  await service.waitUntilReady(120_000)
  const pids = partsOf(service)
  const highest = new Map<string, number>()
  const look = () => {
    for (const [name, pid] of pids)
      if (name !== 'postgres')
        highest.set(name, Math.max(highest.get(name) ?? 0, residentBytes(pid)))
  }
  look()
  const idle = megabytes(highest)
  const timer = setInterval(look, 25)
  const pool = new Pool(gateway.origin, { connections: atOnce, headersTimeout: 0, bodyTimeout: 0 })
  const body = bodyOf('whole', textOf(bytes))
  const statuses = await Promise.all(
    Array.from({ length: atOnce }, async () => {
      const reply = await pool.request(post(pathOf('whole'), body))
      await reply.body.dump()
      return reply.statusCode
    }),
  )
  await sleep(100)
  clearInterval(timer)
  await pool.close()
  const served = statuses.filter((status) => status === 200).length
  const other = [...new Set(statuses.filter((status) => status !== 200))].join(', ')
  console.log(
    `memory           ${String(atOnce).padStart(2)} × ${String(bytes / 1024).padStart(4)} KiB: ${megabytes(highest)} at most (${idle} before); ` +
      `${served} served${other === '' ? '' : `, the others ${other}`}`,
  )
}

function residentBytes(pid: number): number {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(text)?.[1]) * 1024
}

function megabytes(values: ReadonlyMap<string, number>): string {
  return [...values].map(([name, value]) => `${name} ${Math.round(value / 2 ** 20)} MiB`).join(', ')
}
