import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import type { CallObserver, CallReport } from '../call-scope.ts'

/** Prefix of all our metrics. */
export const METRICS_PREFIX = 'affidavit_'

/** From what a cached answer takes to what a long generation does, seconds. */
export const DURATION_BUCKETS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]

/** Records in one commit, up to the committer's limit. */
export const BATCH_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128]

/** What is counted as it happens; what is read when it is asked for: gauges.ts. */
export type Meter = {
  readonly registry: Registry
  readonly calls: CallObserver
  /** One commit of so many records that took so long, from the enclave's reply until it was durable. */
  countCommit(commit: { readonly records: number; readonly durationMs: number }): void
}

/**
 * A meter with a registry of its own, and Node's own metrics in it. Labels come from the router's patterns, lists in our code and
 * status codes, never from what a caller sends: a caller could otherwise make as many series as it likes.
 */
export function createMeter(): Meter {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  return { registry, calls: observeCalls(registry), countCommit: countCommits(registry) }
}

function observeCalls(registry: Registry): CallObserver {
  const registers = [registry]
  const inFlight = new Gauge({
    name: `${METRICS_PREFIX}calls_in_flight`,
    help: 'Calls to the API whose answer is not at its end',
    registers,
  })
  const calls = new Counter({
    name: `${METRICS_PREFIX}calls_total`,
    help: 'Calls to the API that are over; cut: their caller, or we, left before the end of the answer; error: a stream ended with an error event',
    labelNames: ['method', 'route', 'status', 'end'] as const,
    registers,
  })
  const durations = new Histogram({
    name: `${METRICS_PREFIX}call_duration_seconds`,
    help: 'Time of calls by phase; whole: to the end of the answer, head: to its begin, others: what was waited for',
    labelNames: ['route', 'phase'] as const,
    buckets: DURATION_BUCKETS,
    registers,
  })
  const firstTokens = new Histogram({
    name: `${METRICS_PREFIX}time_to_first_token_seconds`,
    help: 'Time until the first event of a streamed answer',
    labelNames: ['route'] as const,
    buckets: DURATION_BUCKETS,
    registers,
  })

  function count(report: CallReport): void {
    inFlight.dec()
    const route = report.route ?? 'none'
    const method = METHODS.has(report.method) ? report.method : 'other'
    calls.inc({ method, route, status: String(report.status), end: endOf(report) })
    durations.observe({ route, phase: 'whole' }, report.durationMs / 1000)
    if (report.headMs !== null) durations.observe({ route, phase: 'head' }, report.headMs / 1000)
    if (report.firstEventMs !== null) firstTokens.observe({ route }, report.firstEventMs / 1000)
    for (const { phase, durationMs } of report.phases) durations.observe({ route, phase }, durationMs / 1000)
  }

  return {
    begin() {
      inFlight.inc()
      return { traceparent: null, end: count }
    },
  }
}

/** A stream has status 200 however it ends; the status of any other answer tells of its error. */
function endOf({ isWhole, status, error }: CallReport): 'whole' | 'cut' | 'error' {
  if (!isWhole) return 'cut'
  return error !== null && status < 400 ? 'error' : 'whole'
}

/** Of a method that is none of these, only that it is another one is kept. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

function countCommits(registry: Registry): Meter['countCommit'] {
  const registers = [registry]
  const records = new Histogram({
    name: `${METRICS_PREFIX}commit_records`,
    help: 'Records in one commit',
    buckets: BATCH_BUCKETS,
    registers,
  })
  const durations = new Histogram({
    name: `${METRICS_PREFIX}commit_duration_seconds`,
    help: "Time from the enclave's reply until its records and their anchor are durable",
    buckets: DURATION_BUCKETS,
    registers,
  })
  return (commit) => {
    records.observe(commit.records)
    durations.observe(commit.durationMs / 1000)
  }
}
