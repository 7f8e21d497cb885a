import { availableParallelism } from 'node:os'
import { startAffidavit } from '../support/affidavit.ts'
import { startForwarder } from './forwarder-process.ts'
import { type LoadPlan, type LoadResult, runLoad } from './load.ts'
import { listTree, nameProcess, readCpuSeconds } from './processes.ts'
import { runStreams, type StreamResult } from './stream-load.ts'
import { awaitNode, CHAT_PATH, keyHeaders, requestTo, type Target, warmUp } from './targets.ts'

/**
 * `node test/bench/plain-chat.ts`: plain chat as `npm start` serves it (gateway → node agent over
 * its WebSocket → demo backend). It is compared with the backend itself, with a bare Koa + undici
 * forwarder in front of the backend, and with two forwarders in a row, which have as many hops as
 * plain chat; all in one run on one machine. Each figure comes with the CPU time of a request in
 * every process, because all processes and the load generator share the machine's cores.
 */
const WARMUP_REQUESTS = 10_000
/** Streams with pauses; a node takes at most ten at a time. */
const WARMUP_STREAMS = 2_000
const WARMUP_MS = 1_000
const DURATION_MS = 6_000
const CONNECTIONS = [1, 32, 256]
/**
 * Pause of the backend before each chunk of the streamed part, so that chunks come one by one, as a
 * model makes them.
 */
const CHUNK_DELAY_MS = 5
const STREAMS = 60

/** With the processes that may work for a request, without the load generator. */
type Measured = Target & { readonly pids: readonly number[] }

await withService({}, measureWhole)
await withService({ DEMO_DELAY_MS: String(CHUNK_DELAY_MS) }, measureStreams)

async function withService(
  variables: Readonly<Record<string, string>>,
  measure: (targets: readonly Measured[]) => Promise<void>,
): Promise<void> {
  const affidavit = await startAffidavit({ logLevel: 'warn', variables })
  const forwarder = await startForwarder(affidavit.providerUrl)
  const second = await startForwarder(forwarder.origin)
  try {
    await awaitNode(affidavit)
    const { url, apiKey, providerUrl } = affidavit
    const pids = [...listTree(affidavit.pid), forwarder.process.pid ?? 0, second.process.pid ?? 0]
    const common = { path: CHAT_PATH, headers: {}, pids }
    await measure([
      { ...common, name: 'backend itself', origin: providerUrl },
      { ...common, name: 'bare Koa + undici', origin: forwarder.origin },
      { ...common, name: 'two of these in a row', origin: second.origin },
      { ...common, name: 'plain chat', origin: url, headers: keyHeaders(apiKey) },
    ])
  } finally {
    second.process.kill()
    forwarder.process.kill()
    await affidavit.stop()
    await affidavit.remove()
  }
}

async function measureWhole(targets: readonly Measured[]): Promise<void> {
  for (const target of targets) await warmUp(target, { requests: WARMUP_REQUESTS, stream: false })
  for (const connections of CONNECTIONS) {
    const rows: LoadResult[] = []
    for (const target of targets) {
      const plan = { ...requestTo(target, { words: 8, stream: false }), connections }
      const { row, cpu } = await runMeasured(
        { ...plan, warmupMs: WARMUP_MS, durationMs: DURATION_MS },
        target.pids,
      )
      rows.push(row)
      console.log(
        `whole  ${String(connections).padStart(3)} conn  ${target.name.padEnd(21)} ` +
          `${row.requestsPerSecond.toFixed(0).padStart(6)} req/s  p50 ${row.p50Ms.toFixed(2).padStart(7)} ms  ` +
          `p99 ${row.p99Ms.toFixed(2).padStart(7)} ms  errors ${row.errors}\n       CPU ms a request: ${cpu}`,
      )
    }
    const [backend, bare, two, plain] = rows
    if (!backend || !bare || !two || !plain) throw new Error('expected four targets')
    console.log(
      `       plain chat is ${(plain.requestsPerSecond / bare.requestsPerSecond).toFixed(2)} of the forwarder's req/s (aim: 0.60), ` +
        `${(plain.requestsPerSecond / two.requestsPerSecond).toFixed(2)} of two forwarders'; added over ` +
        `the backend: p50 ${(plain.p50Ms - backend.p50Ms).toFixed(2)} ms, p99 ${(plain.p99Ms - backend.p99Ms).toFixed(2)} ms ` +
        `(forwarder ${(bare.p50Ms - backend.p50Ms).toFixed(2)} and ${(bare.p99Ms - backend.p99Ms).toFixed(2)}, ` +
        `two ${(two.p50Ms - backend.p50Ms).toFixed(2)} and ${(two.p99Ms - backend.p99Ms).toFixed(2)})`,
    )
  }
}

/**
 * Runs the plan. Prints the CPU time of a request in each process, and the requests a second that
 * all cores together have time for.
 */
async function runMeasured(
  plan: LoadPlan,
  pids: readonly number[],
): Promise<{ readonly row: LoadResult; readonly cpu: string }> {
  const all = [...pids, process.pid]
  let before = readCpuSeconds(all)
  const warm = setTimeout(() => {
    before = readCpuSeconds(all)
  }, plan.warmupMs)
  const row = await runLoad(plan)
  clearTimeout(warm)
  const after = readCpuSeconds(all)
  const perRequest = all.map((pid) => ({
    name: nameProcess(pid),
    ms: (((after.get(pid) ?? 0) - (before.get(pid) ?? 0)) * 1000) / row.requests,
  }))
  const together = perRequest.reduce((sum, { ms }) => sum + ms, 0)
  const parts = perRequest
    .filter(({ ms }) => ms >= 0.01)
    .map(({ name, ms }) => `${name} ${ms.toFixed(2)}`)
  const bound = (availableParallelism() * 1000) / together
  return {
    row,
    cpu: `${parts.join(', ')}; together ${together.toFixed(2)}, so at most ${bound.toFixed(0)} req/s`,
  }
}

async function measureStreams(targets: readonly Target[]): Promise<void> {
  for (const target of targets) await warmUp(target, { requests: WARMUP_STREAMS, stream: true })
  for (const connections of [1, 10]) {
    const rows: StreamResult[] = []
    for (const target of targets) {
      const row = await runStreams({
        ...requestTo(target, { words: 100, stream: true }),
        connections,
        streams: STREAMS,
      })
      rows.push(row)
      console.log(
        `stream ${String(connections).padStart(3)} conn  ${target.name.padEnd(21)} ${row.chunks} chunks, ` +
          `first p50 ${row.firstP50Ms.toFixed(2)} p99 ${row.firstP99Ms.toFixed(2)} ms, ` +
          `between p50 ${row.gapP50Ms.toFixed(2)} p99 ${row.gapP99Ms.toFixed(2)} ms, errors ${row.errors}`,
      )
    }
    const [backend, bare, two, plain] = rows
    if (!backend || !bare || !two || !plain) throw new Error('expected four targets')
    const added = (row: StreamResult) =>
      `${(row.firstP50Ms - backend.firstP50Ms).toFixed(2)} and ${(row.gapP50Ms - backend.gapP50Ms).toFixed(2)} ms`
    console.log(
      `       added to the first token, and between chunks: ${added(plain)} (forwarder ${added(bare)}, two ${added(two)})`,
    )
  }
}
