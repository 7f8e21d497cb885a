import { startNodeAgent } from '../../src/local/node-agent.ts'
import type { Affidavit } from '../support/affidavit.ts'
import { recordLog } from '../support/chain.ts'
import { readMetrics } from '../support/read-metrics.ts'
import { type Replicas, startReplicas } from '../support/replicas.ts'
import { until } from '../support/until.ts'
import { type LoadResult, runLoad } from './load.ts'
import { listTree, nameProcess, readCpuSeconds } from './processes.ts'

/**
 * `node test/bench/replicas.ts`: verified and plain throughput with 1, 2 and 4 gateways, as
 * deployed (processes), on one Postgres and the same two enclaves, against one gateway of the same
 * run; last with one gateway again. As many callers in all, spread evenly. Each gateway has a node
 * of its own. All of them, and the load generator, share the machine's cores, so with each comes the CPU time
 * that a request took of the processes of every kind.
 */
const COUNTS = [1, 2, 4]
const CONNECTIONS = 32
const ENCLAVES = 2
const WARMUP_REQUESTS = 1_500
const WARMUP_MS = 1_000
const DURATION_MS = 8_000

type Kind = 'verified' | 'plain'
type Measured = LoadResult & { readonly races: number; readonly cpu: Cpu }
/** CPU milliseconds that a request took, by kind of process. */
type Cpu = ReadonlyMap<string, number>

const PATHS: Readonly<Record<Kind, string>> = {
  verified: '/v1/verified/chat/completions',
  plain: '/v1/chat/completions',
}

const KINDS: ReadonlyMap<string, string> = new Map([
  ['src/main.ts', 'gateways'],
  ['enclave/main.ts', 'enclaves'],
  ['agent/main.ts', 'agents'],
  ['demo/main.ts', 'provider'],
])

const replicas = await startReplicas({
  enclaves: ENCLAVES,
  settings: { fsync: 'on' },
  logLevel: 'warn',
})
const running: { readonly gateway: Affidavit; stop(): Promise<void> }[] = []
try {
  const first = new Map<Kind, Measured>()
  for (const count of [...COUNTS, 1]) {
    while (running.length < count) running.push(await startGateway(replicas))
    while (running.length > count) await running.pop()?.stop()
    const isAgain = first.size > 0 && count === 1
    console.log(`${count} gateway${count === 1 ? (isAgain ? ' again' : '') : 's'}`)
    for (const kind of ['verified', 'plain'] as const) {
      const measured = await measure(kind)
      print(kind, measured, first.get(kind) ?? null)
      if (!first.has(kind)) first.set(kind, measured)
    }
  }
} finally {
  for (const { stop } of running) await stop()
  await replicas.stop()
}

/** A gateway and a node of its own. */
async function startGateway({ apiKey, fleet, start }: Replicas) {
  const gateway = await start()
  const agent = await startNodeAgent(
    {
      gatewayUrl: gateway.url,
      ...{ apiKey, backendUrl: fleet.providerOrigin, dataFolder: gateway.dataFolder },
      ...{ drainMs: 1_000, logLevel: 'warn', variables: {} },
    },
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

async function load(kind: Kind, durationMs: number, warmupMs: number): Promise<LoadResult> {
  const results = await Promise.all(
    running.map(({ gateway }) =>
      runLoad({
        ...{ origin: gateway.url, path: PATHS[kind], warmupMs, durationMs },
        headers: { authorization: `Bearer ${replicas.apiKey}` },
        body: JSON.stringify({
          model: 'demo/echo',
          messages: [{ role: 'user', content: 'Say in one sentence why evidence matters.' }],
        }),
        connections: CONNECTIONS / running.length,
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

async function measure(kind: Kind): Promise<Measured> {
  // Each of them is warmed up by as many requests: V8 compiles by how often code ran.
  for (let served = 0; served < WARMUP_REQUESTS * running.length; )
    served += (await load(kind, 1_000, 0)).requests
  const pids = listTree(process.pid)
  const [racesBefore, before] = [await countRaces(), readCpuSeconds(pids)]
  const result = await load(kind, DURATION_MS, WARMUP_MS)
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

function print(kind: Kind, { races, cpu, ...result }: Measured, one: Measured | null): void {
  const ratio =
    one === null ? '' : `  ${(result.requestsPerSecond / one.requestsPerSecond).toFixed(2)} × one`
  const batch =
    kind === 'plain'
      ? ''
      : `, ${(result.requests / result.txHashes.size).toFixed(1)} completions a commit, ${races} races`
  console.log(
    `  ${kind.padEnd(8)} ${result.requestsPerSecond.toFixed(0).padStart(6)} req/s${ratio}  p50 ${result.p50Ms.toFixed(1)} ms  ` +
      `p99 ${result.p99Ms.toFixed(1)} ms  errors ${result.errors}${batch}`,
  )
  const total = [...cpu.values()].reduce((sum, value) => sum + value, 0)
  const parts = [...cpu]
    .filter(([, spentMs]) => spentMs >= 0.005)
    .toSorted(([, left], [, right]) => right - left)
    .map(([name, spentMs]) => `${name} ${spentMs.toFixed(2)}`)
  console.log(`           CPU ms a request: ${total.toFixed(2)} (${parts.join(', ')})`)
}
