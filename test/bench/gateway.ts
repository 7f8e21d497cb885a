import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { startPostgres } from '../support/postgres.ts'
import { startForwarder } from './forwarder-process.ts'
import { type LoadResult, runLoad } from './load.ts'
import { listTree, nameProcess, readCpuSeconds } from './processes.ts'

const WARMUP_MS = 2_000
const DURATION_MS = 6_000
const CONNECTIONS = [1, 32]

type Target = {
  readonly name: string
  readonly origin: string
  readonly path: string
  readonly key: string | null
}
type Row = LoadResult & {
  readonly target: string
  readonly connections: number
  readonly stream: boolean
}

/**
 * Measures, in one run on one machine: the demo provider itself, a bare Koa + undici forwarder in
 * front of the provider, and the verified endpoint with all its parts (enclave, database, chain).
 * The load generator shares the machine.
 */
export async function benchGateway(database: 'PGlite' | 'Postgres'): Promise<void> {
  console.log(`database: ${database}`)
  const postgres = database === 'Postgres' ? await startPostgres({ fsync: 'on' }) : null
  try {
    await benchWith(postgres === null ? {} : { DATABASE_URL: postgres.url })
  } finally {
    await postgres?.stop()
  }
}

async function benchWith(variables: Readonly<Record<string, string>>): Promise<void> {
  const affidavit = await startAffidavit({ logLevel: 'warn', variables })
  const forwarder = await startForwarder(affidavit.providerUrl)
  try {
    const targets: readonly Target[] = [
      {
        name: 'provider itself',
        origin: affidavit.providerUrl,
        path: '/v1/chat/completions',
        key: null,
      },
      {
        name: 'bare Koa + undici',
        origin: forwarder.origin,
        path: '/v1/chat/completions',
        key: null,
      },
      {
        name: 'verified endpoint',
        origin: affidavit.url,
        path: '/v1/verified/chat/completions',
        key: affidavit.apiKey,
      },
    ]
    const rows: Row[] = []
    for (const stream of [false, true])
      for (const connections of CONNECTIONS)
        for (const target of targets)
          rows.push(await measure(target, { connections, stream, affidavit }))
    printRatios(rows)
  } finally {
    forwarder.process.kill()
    await affidavit.stop()
    await affidavit.remove()
  }
}

async function measure(
  target: Target,
  {
    connections,
    stream,
    affidavit,
  }: { connections: number; stream: boolean; affidavit: Affidavit },
): Promise<Row> {
  const pids = listTree(affidavit.pid)
  const before = readCpuSeconds(pids)
  const result = await runLoad({
    origin: target.origin,
    path: target.path,
    headers: target.key ? { authorization: `Bearer ${target.key}` } : {},
    body: JSON.stringify({
      model: 'demo/echo',
      stream,
      messages: [{ role: 'user', content: 'Say in one sentence why evidence matters.' }],
    }),
    connections,
    warmupMs: WARMUP_MS,
    durationMs: DURATION_MS,
  })
  const after = readCpuSeconds(pids)
  const row = { ...result, target: target.name, connections, stream }
  printRow(row)
  if (result.txHashes.size > 0) {
    await printAnchors(row, affidavit.rpcUrl)
    printCpu({
      before,
      after,
      requests: result.requests * ((WARMUP_MS + DURATION_MS) / DURATION_MS),
    })
  }
  return row
}

function printRow(row: Row): void {
  const kind = row.stream ? 'stream' : 'plain '
  console.log(
    `${kind} ${String(row.connections).padStart(3)} conn  ${row.target.padEnd(18)} ` +
      `${row.requestsPerSecond.toFixed(0).padStart(6)} req/s  p50 ${row.p50Ms.toFixed(2).padStart(7)} ms  ` +
      `p99 ${row.p99Ms.toFixed(2).padStart(7)} ms  errors ${row.errors}`,
  )
}

/** Gas from the chain's receipts, for a sample of the anchors in the answers. */
async function printAnchors(row: Row, rpcUrl: string): Promise<void> {
  const hashes = [...row.txHashes]
  const sample = hashes.filter((_, index) => index % Math.ceil(hashes.length / 50) === 0)
  const gas: number[] = []
  for (const hash of sample) gas.push(await fetchGasUsed(rpcUrl, hash))
  const mean = gas.reduce((sum, value) => sum + value, 0) / gas.length
  const perAnchor = row.requests / hashes.length
  console.log(
    `       ${perAnchor.toFixed(1)} completions per anchor transaction, ${mean.toFixed(0)} gas per anchor, ` +
      `${(mean / perAnchor).toFixed(0)} gas per completion (mean of ${gas.length} receipts)`,
  )
}

async function fetchGasUsed(rpcUrl: string, hash: string): Promise<number> {
  for (let attempt = 0; attempt < 50; attempt += 1) {
    const response = await fetch(rpcUrl, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'eth_getTransactionReceipt',
        params: [hash],
      }),
    })
    const { result } = (await response.json()) as {
      result: { gasUsed: string; status: string } | null
    }
    if (result?.status === '0x1') return Number(result.gasUsed)
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  throw new Error(`anchor ${hash} was not mined within 10 s`)
}

type CpuSpan = {
  readonly before: ReadonlyMap<number, number>
  readonly after: ReadonlyMap<number, number>
  readonly requests: number
}

function printCpu({ before, after, requests }: CpuSpan): void {
  const rows = [...after].map(([pid, seconds]) => ({
    name: nameProcess(pid),
    seconds: ((seconds - (before.get(pid) ?? seconds)) / requests) * 1000,
  }))
  const total = rows.reduce((sum, { seconds }) => sum + seconds, 0)
  const parts = rows
    .filter(({ seconds }) => seconds > 0.005)
    .sort((a, b) => b.seconds - a.seconds)
    .map(({ name, seconds }) => `${name} ${seconds.toFixed(2)}`)
  console.log(`       CPU seconds per 1,000 requests: ${total.toFixed(2)} (${parts.join(', ')})`)
}

function printRatios(rows: readonly Row[]): void {
  console.log('\nratios in this run')
  for (const stream of [false, true])
    for (const connections of CONNECTIONS) {
      const find = (name: string) =>
        rows.find(
          (row) => row.target === name && row.stream === stream && row.connections === connections,
        )
      const [provider, forwarder, verified] = [
        'provider itself',
        'bare Koa + undici',
        'verified endpoint',
      ].map(find)
      if (!provider || !forwarder || !verified) continue
      console.log(
        `${stream ? 'stream' : 'plain '} ${String(connections).padStart(3)} conn  verified / bare forwarder ` +
          `${(verified.requestsPerSecond / forwarder.requestsPerSecond).toFixed(3)} of its req/s;  ` +
          `p50 ${(verified.p50Ms - provider.p50Ms).toFixed(2)} ms above the provider's`,
      )
    }
}
