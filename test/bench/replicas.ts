import { parseArgs } from 'node:util'
import { startNodeAgent } from '#src/local/node-agent.ts'
import type { Affidavit } from '../support/affidavit.ts'
import { recordLog } from '../support/chain.ts'
import { readMetrics } from '../support/read-metrics.ts'
import { type Replicas, startReplicas } from '../support/replicas.ts'
import { until } from '../support/until.ts'
import { type LoadResult, runLoad } from './load.ts'
import { listTree, nameProcess, readCpuSeconds } from './processes.ts'

/**
 * `node test/bench/replicas.ts [--counts 1,2,4] [--turns 3]`: verified and plain throughput with
 * one, two and four gateways, deployed as processes, on one Postgres and the same two enclaves.
 * Figures are ratios to the first count of the same run. All gateways are started and warmed up.
 * Then the same number of callers goes to one of them, to two, to four, in turns, so that other
 * load on the machine affects all alike; figures are medians of the turns. Each gateway has its own
 * node. All processes and the load generator share the machine's cores, so each figure comes with
 * the CPU time of a request, by kind of process.
 */
const { values } = parseArgs({
  options: {
    counts: { type: 'string', default: '1,2,4' },
    turns: { type: 'string', default: '3' },
  },
})
const COUNTS = values.counts.split(',').map(Number)
const TURNS = Number(values.turns)
const CONNECTIONS = 32
const ENCLAVES = 2
const WARMUP_REQUESTS = 4_000
const WARMUP_TIMEOUT_MS = 20_000
const WARMUP_MS = 500
const DURATION_MS = 5_000

type Kind = 'verified' | 'plain'
type Measured = LoadResult & { readonly races: number; readonly cpu: Cpu }
/** CPU milliseconds of a request, by kind of process. */
type Cpu = ReadonlyMap<string, number>

type Running = { readonly gateway: Affidavit; stop(): Promise<void> }
/** The gateways that get calls. */
type Loaded = readonly Pick<Running, 'gateway'>[]

const PATHS: Readonly<Record<Kind, string>> = {
  verified: '/v1/verified/chat/completions',
  plain: '/v1/chat/completions',
}

const KINDS: ReadonlyMap<string, string> = new Map([
  ['src/main.ts', 'gateways'],
  ['enclave/main.ts', 'enclaves'],
  ['agent/main.ts', 'agents'],
  ['demo/main.ts', 'provider'],
  ['bin/anvil', 'chain'],
])

const replicas = await startReplicas({
  enclaves: ENCLAVES,
  settings: { fsync: 'on' },
  logLevel: 'warn',
})
const running: Running[] = []
try {
  while (running.length < Math.max(...COUNTS)) running.push(await startGateway(replicas))
  for (const kind of ['verified', 'plain'] as const) {
    for (const one of running) await warmUp(kind, [one])
    const turns = new Map(COUNTS.map((count) => [count, [] as Measured[]]))
    for (let turn = 0; turn < TURNS; turn++)
      for (const [count, measured] of turns)
        measured.push(await measure(kind, running.slice(0, count)))
    const one = median(
      turns.get(COUNTS[0] ?? 0) ?? [],
      ({ requestsPerSecond }) => requestsPerSecond,
    )
    for (const [count, measured] of turns) print(kind, { count, measured, one })
  }
} finally {
  for (const { stop } of running) await stop()
  await replicas.stop()
}

/** Starts a gateway with its own node. */
async function startGateway({ apiKey, fleet, start }: Replicas) {
  const gateway = await start()
  const agent = await startNodeAgent(
    {
      dataFolder: gateway.dataFolder,
      shutdownGraceMs: 1_000,
      logLevel: 'warn',
      agentVariables: {},
    },
    { gatewayUrl: gateway.url, apiKey, backendUrl: fleet.providerOrigin },
    recordLog().log,
  )
  await until(
    'a node serves',
    async () => {
      const reply = await fetch(`${gateway.url}/v1/models`, {
        headers: { authorization: `Bearer ${apiKey}` },
      })
      return (await reply.text()).includes('demo/echo')
    },
    60_000,
  )
  return {
    gateway,
    stop: async () => {
      await gateway.stop()
      await agent.stop()
    },
  }
}

async function warmUp(kind: Kind, gateways: Loaded): Promise<void> {
  // By number of requests: V8 compiles by how often code ran.
  const deadline = performance.now() + WARMUP_TIMEOUT_MS
  for (let served = 0; served < WARMUP_REQUESTS && performance.now() < deadline; )
    served += (await load(kind, gateways, { durationMs: 1_000, warmupMs: 0 })).requests
}

async function load(
  kind: Kind,
  gateways: Loaded,
  { durationMs, warmupMs }: { readonly durationMs: number; readonly warmupMs: number },
): Promise<LoadResult> {
  const results = await Promise.all(
    gateways.map(({ gateway }) =>
      runLoad({
        origin: gateway.url,
        path: PATHS[kind],
        warmupMs,
        durationMs,
        headers: { authorization: `Bearer ${replicas.apiKey}` },
        body: JSON.stringify({
          model: 'demo/echo',
          messages: [{ role: 'user', content: 'Say in one sentence why evidence matters.' }],
        }),
        connections: CONNECTIONS / gateways.length,
      }),
    ),
  )
  const sum = (read: (result: LoadResult) => number) =>
    results.reduce((total, result) => total + read(result), 0)
  return {
    requests: sum(({ requests }) => requests),
    errors: sum(({ errors }) => errors),
    requestsPerSecond: sum(({ requestsPerSecond }) => requestsPerSecond),
    p50Ms: sum(({ p50Ms }) => p50Ms) / results.length,
    p99Ms: Math.max(...results.map(({ p99Ms }) => p99Ms)),
    txHashes: new Set(results.flatMap(({ txHashes }) => [...txHashes])),
  }
}

async function measure(kind: Kind, gateways: Loaded): Promise<Measured> {
  const pids = listTree(process.pid)
  const [racesBefore, before] = [await countRaces(), readCpuSeconds(pids)]
  const times = { durationMs: DURATION_MS, warmupMs: WARMUP_MS }
  const result = await load(kind, gateways, times)
  const [races, after] = [(await countRaces()) - racesBefore, readCpuSeconds(pids)]
  const requests = result.requests * ((WARMUP_MS + DURATION_MS) / DURATION_MS)
  const cpu = new Map<string, number>()
  for (const [pid, seconds] of after) {
    const name = pid === process.pid ? 'load' : (KINDS.get(nameProcess(pid)) ?? 'postgres')
    const spentMs = ((seconds - (before.get(pid) ?? seconds)) * 1000) / requests
    cpu.set(name, (cpu.get(name) ?? 0) + spentMs)
  }
  return { ...result, races, cpu }
}

async function countRaces(): Promise<number> {
  const counts = await Promise.all(
    running.map(async ({ gateway }) => {
      const metrics = readMetrics(await (await fetch(gateway.metricsUrl)).text())
      return metrics.find(({ name }) => name === 'affidavit_commit_races_total')?.value ?? 0
    }),
  )
  return counts.reduce((total, count) => total + count, 0)
}

function print(
  kind: Kind,
  {
    count,
    measured,
    one,
  }: { readonly count: number; readonly measured: readonly Measured[]; readonly one: number },
): void {
  const of = (read: (row: Measured) => number) => median(measured, read)
  const perSecond = of(({ requestsPerSecond }) => requestsPerSecond)
  const errors = measured.reduce((total, row) => total + row.errors, 0)
  const commits =
    kind === 'plain'
      ? ''
      : `, ${of((row) => row.requests / row.txHashes.size).toFixed(1)} completions a commit, ${of(({ races }) => races)} races`
  console.log(
    `${kind.padEnd(8)} ${count} gateway${count === 1 ? ' ' : 's'} ${perSecond.toFixed(0).padStart(6)} req/s  ` +
      `${(perSecond / one).toFixed(2)} × one  p50 ${of(({ p50Ms }) => p50Ms).toFixed(1)} ms  ` +
      `p99 ${of(({ p99Ms }) => p99Ms).toFixed(1)} ms  errors ${errors}${commits}`,
  )
  const names = [...new Set(measured.flatMap(({ cpu }) => [...cpu.keys()]))]
  const parts = names
    .map((name) => ({ name, spentMs: of(({ cpu }) => cpu.get(name) ?? 0) }))
    .filter(({ spentMs }) => spentMs >= 0.005)
    .toSorted((left, right) => right.spentMs - left.spentMs)
  const total = parts.reduce((sum, { spentMs }) => sum + spentMs, 0)
  console.log(
    `         CPU ms a request: ${total.toFixed(2)} (${parts.map(({ name, spentMs }) => `${name} ${spentMs.toFixed(2)}`).join(', ')})`,
  )
}

function median(rows: readonly Measured[], read: (row: Measured) => number): number {
  const sorted = rows.map(read).toSorted((left, right) => left - right)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}
