import { setTimeout as sleep } from 'node:timers/promises'
import { auditRun } from '../support/deployment/audit.ts'
import {
  CALL_KINDS,
  type CallKind,
  type CallOutcome,
  createCaller,
} from '../support/deployment/callers.ts'
import type { DeployedGateway, Deployment } from '../support/deployment/deployment.ts'
import { readMetrics, type Sample } from '../support/read-metrics.ts'
import { until } from '../support/until.ts'
import type { Fault, Scene } from './faults.ts'

/** What one fault did. Times are milliseconds from its begin; of what came back, from its end. */
export type Measurement = {
  readonly fault: Fault
  readonly heldMs: number
  /** Calls that were under way, or began, while it lasted. */
  readonly during: readonly CallOutcome[]
  /** Those before and after it too. */
  readonly calls: number
  /** What else than 200 /readyz of the first gateway said. */
  readonly readyz: readonly { readonly said: string; readonly afterMs: number }[]
  /** When it said 200 again; null: it never said anything else, or did so to the end. */
  readonly readyAfterMs: number | null
  /** Metrics of the first gateway that show the fault. */
  readonly metrics: readonly { readonly name: string; readonly afterMs: number }[]
  /** Begin of the last call that failed, of those that began after the end; 0: none did. */
  readonly recoveredAfterMs: number
  readonly proven: number
  /** What the audit found wrong; empty: nothing that was acknowledged was lost. */
  readonly lost: readonly string[]
  /** How often the gateway's process exited by itself. */
  readonly exits: number
}

/**
 * How callers behave: the time between two calls of a kind, after which a caller gives up (longer
 * than any limit that the service has for a call), and until which calls must go well again.
 */
export const LOAD = { intervalMs: 600, timeoutMs: 120_000, recoveryMs: 90_000 } as const

const BASELINE_MS = 2_000
/** Calls go well for this long before the service counts as recovered. */
const STEADY_MS = 4_000
/** Calls of a kind that wait at once; more would measure the crowd. */
const WAITING_MAX = 40

/**
 * Lets a fault befall the scene under load, and measures what callers, /readyz and the metrics say.
 * Calls go to the first gateway alone, so that what is measured is what one gateway does, but for
 * faults of one of two gateways: those calls go through the reverse proxy.
 */
export async function measureFault(fault: Fault, scene: Scene): Promise<Measurement> {
  const { deployment } = scene
  const [gateway] = deployment.gateways
  if (gateway === undefined) throw new Error('expected a gateway')
  if (fault.prepare !== undefined) await restart(gateway, deployment, () => fault.prepare?.(scene))
  await until('nothing is left of the row before', () => isWell(gateway.origin), 60_000)
  const exitsBefore = gateway.program.exits
  const isProxied = fault.part === 'Gateway' && fault.name.startsWith('one of two')
  const calls = startCalls(scene, isProxied ? deployment.origin : gateway.origin)
  const watch = watchGateway(gateway)
  await sleep(BASELINE_MS)
  const before = watch.lastSamples()
  const beganMs = performance.now()
  await fault.begin(scene)
  await sleep(fault.holdMs)
  await fault.end(scene)
  const endedMs = performance.now()
  const hasRecovered = await awaitRecovery(calls.outcomes, endedMs)
  const outcomes = await calls.stop()
  await deployment.waitUntilReady().catch(() => undefined)
  const { readyz, metrics } = await watch.stop()
  const exits = gateway.program.exits - exitsBefore
  const proven = outcomes.flatMap(({ proven: one }) => (one === null ? [] : [one]))
  const lost = await auditRun(
    {
      origin: gateway.origin,
      key: deployment.key,
      rpcUrl: deployment.chain.rpcUrl,
      contract: deployment.chain.contract,
    },
    proven,
  ).catch((error: Error) => [`no audit: ${error.message}`])
  if (fault.prepare !== undefined) await restart(gateway, deployment, () => undefined)
  const late = outcomes.filter((call) => call.code !== 'ok' && call.firstBeganMs > endedMs)
  return {
    fault,
    proven: proven.length,
    lost,
    exits,
    heldMs: endedMs - beganMs,
    during: outcomes.filter((call) => call.endedMs > beganMs && call.firstBeganMs < endedMs),
    calls: outcomes.length,
    ...readChanges(readyz, { beganMs, endedMs }),
    metrics: findSymptoms(metrics, before, beganMs),
    recoveredAfterMs: hasRecovered
      ? Math.max(0, ...late.map((call) => call.beganMs - endedMs))
      : Number.POSITIVE_INFINITY,
  }
}

/** Starts a gateway otherwise; without changes as it was. */
async function restart(
  { program }: DeployedGateway,
  { waitUntilReady }: Deployment,
  prepare: () => ReturnType<NonNullable<Fault['prepare']>> | undefined,
): Promise<void> {
  const changes = await prepare()
  await program.end('SIGTERM')
  program.start(changes)
  await waitUntilReady()
}

async function isWell(origin: string): Promise<boolean> {
  return fetch(`${origin}/readyz`)
    .then((reply) => reply.text())
    .then((text) => describeReadyz(text) === WELL)
    .catch(() => false)
}

/** Waits until calls of all kinds go well for a while; false when they do not in time. */
async function awaitRecovery(outcomes: readonly CallOutcome[], endedMs: number): Promise<boolean> {
  const isSteady = () => {
    const since = Math.max(performance.now() - STEADY_MS, endedMs)
    const recent = outcomes.filter(({ beganMs }) => beganMs > since)
    return (
      performance.now() - endedMs > STEADY_MS &&
      CALL_KINDS.every((kind) => recent.some((call) => call.kind === kind)) &&
      recent.every(({ code }) => code === 'ok')
    )
  }
  while (performance.now() - endedMs < LOAD.recoveryMs) {
    if (isSteady()) return true
    await sleep(100)
  }
  return false
}

/** What /readyz says of a service of which nothing fails. */
const WELL = '200'

function readChanges(
  readyz: readonly Said[],
  { beganMs, endedMs }: { readonly beganMs: number; readonly endedMs: number },
): Pick<Measurement, 'readyz' | 'readyAfterMs'> {
  const changes = readyz.filter(({ said, atMs }) => atMs > beganMs && said !== WELL)
  const last = changes.at(-1)
  const back = readyz.find(({ said, atMs }) => said === WELL && last && atMs > last.atMs)
  return {
    readyz: firstOfEach(changes).map(({ said, atMs }) => ({ said, afterMs: atMs - beganMs })),
    readyAfterMs: back === undefined ? null : Math.max(0, back.atMs - endedMs),
  }
}

/** Calls of all kinds, one after another and not waiting for each other. */
function startCalls(scene: Scene, origin: string) {
  const { intervalMs, timeoutMs } = LOAD
  const caller = createCaller(scene.deployment, origin)
  const outcomes: CallOutcome[] = []
  const waiting = new Map<CallKind, number>()
  /** Texts of two rows are never the same. */
  const runId = crypto.randomUUID().slice(0, 8)
  const running = new Set<Promise<void>>()
  let count = 0
  let isOver = false
  const begin = (kind: CallKind) => {
    const waits = waiting.get(kind) ?? 0
    if (waits >= WAITING_MAX) return
    waiting.set(kind, waits + 1)
    count += 1
    const call = caller
      .call(kind, `${runId} ${kind} ${count}`, timeoutMs)
      .then((outcome) => void outcomes.push(outcome))
      .finally(() => {
        waiting.set(kind, (waiting.get(kind) ?? 1) - 1)
        running.delete(call)
      })
    running.add(call)
  }
  const rounds = CALL_KINDS.map(async (kind, position) => {
    await sleep((position * intervalMs) / CALL_KINDS.length)
    while (!isOver) {
      begin(kind)
      await sleep(intervalMs)
    }
  })
  return {
    outcomes,
    async stop(): Promise<readonly CallOutcome[]> {
      isOver = true
      await Promise.all(rounds)
      await Promise.all(running)
      return outcomes
    },
  }
}

const READYZ_INTERVAL_MS = 50
const READYZ_TIMEOUT_MS = 3_000
const METRICS_INTERVAL_MS = 200

type Said = { readonly said: string; readonly atMs: number }
/** Null: the scrape failed. */
type Scrape = { readonly samples: readonly Sample[] | null; readonly atMs: number }

/** Asks a gateway's /readyz and metrics all the time. */
function watchGateway({ origin, metricsUrl }: Scene['deployment']['gateways'][number]) {
  const readyz: Said[] = []
  const metrics: Scrape[] = []
  let isOver = false
  const ask = async <Value>(url: string, read: (text: string) => Value): Promise<Value | null> =>
    fetch(url, { signal: AbortSignal.timeout(READYZ_TIMEOUT_MS) })
      .then((reply) => reply.text())
      .then(read)
      .catch(() => null)
  const watchReadyz = async () => {
    while (!isOver) {
      const said = (await ask(`${origin}/readyz`, describeReadyz)) ?? 'no answer of the process'
      if (readyz.at(-1)?.said !== said) readyz.push({ said, atMs: performance.now() })
      await sleep(READYZ_INTERVAL_MS)
    }
  }
  const watchMetrics = async () => {
    while (!isOver) {
      const samples = await ask(metricsUrl, readMetrics)
      metrics.push({ samples, atMs: performance.now() })
      await sleep(METRICS_INTERVAL_MS)
    }
  }
  const watching = [watchReadyz(), watchMetrics()]
  return {
    lastSamples: () => metrics.at(-1)?.samples ?? [],
    async stop() {
      isOver = true
      await Promise.all(watching)
      return { readyz, metrics }
    },
  }
}

function describeReadyz(text: string): string {
  const { failing, chain, reasons } = JSON.parse(text) as {
    readonly failing: readonly string[]
    readonly chain: { readonly status: string }
    readonly reasons?: { readonly commits?: string }
  }
  const parts = failing.map((part) =>
    part === 'commits' && reasons?.commits !== undefined ? `commits (${reasons.commits})` : part,
  )
  const said = parts.length === 0 ? WELL : `503 ${parts.join(', ')}`
  return chain.status === 'ok' ? said : `${said}; chain ${chain.status}`
}

function firstOfEach<One extends { readonly said: string }>(all: readonly One[]): readonly One[] {
  return all.filter(({ said }, at) => all.findIndex((one) => one.said === said) === at)
}

/** Gauges of what goes on at any time, which say nothing as long as they are small. */
const BUSY =
  /_(calls_in_flight|node_runs|node_slots_in_use|node_queue|commit_waiting_calls|enclave_log_pending|anchors_unconfirmed|anchors_pending|attestation_age_seconds|anchor_lag_seconds)$/
const LAG_SECONDS = 5
/** Those that say something once they have risen by so much. */
const RISEN: readonly (readonly [ending: string, by: number])[] = [
  ['_connections_silent', 20],
  ['_admitted_bytes', 32 * 1024 * 1024],
  ['_log_waiting_bytes', 256 * 1024],
]
/** Gauges of ours; the counters are left out, since a new process begins them at zero. */
const GAUGE = /^affidavit_(?!\w*_(bucket|sum|count|total)\b)/
/** Counters of what should not be. */
const TROUBLE = /fail|error|refus|drop|lost|revert|taken|again|made_again|reject|timeout|exhaust/

/** Metrics that say something else than before the fault, each with its time. */
function findSymptoms(
  scrapes: readonly Scrape[],
  before: readonly Sample[],
  beganMs: number,
): Measurement['metrics'] {
  const values = new Map(before.map((sample) => [seriesOf(sample), sample]))
  const found = new Map<string, number>()
  for (const { samples, atMs } of scrapes.filter((scrape) => scrape.atMs > beganMs)) {
    const add = (name: string) => {
      if (!found.has(name)) found.set(name, atMs - beganMs)
    }
    if (samples === null) add('the scrape fails')
    const now = new Map((samples ?? []).map((sample) => [seriesOf(sample), sample]))
    for (const [series, sample] of now)
      if (isSymptom(sample, values.get(series)?.value)) add(nameOf(sample))
    // What cannot be read has no value.
    if (samples !== null)
      for (const [series, sample] of values)
        if (sample.value !== 0 && !now.has(series) && GAUGE.test(sample.name))
          add(`${nameOf(sample)} is gone`)
  }
  return [...found].map(([name, afterMs]) => ({ name, afterMs }))
}

function isSymptom({ name, labels, value }: Sample, before: number | undefined): boolean {
  if (!name.startsWith('affidavit_') || /_(bucket|sum|count)$/.test(name)) return false
  const risen = RISEN.find(([ending]) => name.endsWith(ending))
  if (risen !== undefined) return value > (before ?? 0) + risen[1]
  if (name.endsWith('anchor_lag_seconds')) return value > LAG_SECONDS
  if (name.endsWith('_balance_ether')) return value < 0.01
  if (BUSY.test(name)) return false
  if (name.endsWith('calls_total'))
    return (Number(labels.status) >= 429 || labels.end === 'error') && value > (before ?? 0)
  if (TROUBLE.test(`${name} ${labels.state ?? ''}`)) return value > (before ?? 0)
  if (/_(up|serving)$/.test(name)) return value < (before ?? 0)
  if (labels.state !== undefined && /unreachable|connecting|draining/.test(labels.state))
    return value > (before ?? 0)
  return false
}

/** Name of a series, with all labels. */
function seriesOf({ name, labels }: Sample): string {
  const text = Object.entries(labels).map(([label, value]) => `${label}="${value}"`)
  return `${name}{${text.join(',')}}`
}

/** Labels that say what is wrong; others say whose call it was. */
const KEPT_LABELS: ReadonlySet<string> = new Set(['source', 'state', 'status', 'end', 'code'])

/** The same for readers. */
function nameOf({ name, labels }: Sample): string {
  const reported = Object.entries(labels).filter(
    ([label, value]) => KEPT_LABELS.has(label) && value !== 'whole',
  )
  const text = reported.map(([label, value]) => `${label}="${value}"`).join(',')
  return text === '' ? name : `${name}{${text}}`
}
