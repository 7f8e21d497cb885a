import { once } from 'node:events'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { singleFlight } from '../runtime/single-flight.ts'
import { type OnStarted, StartFailure, systemCodeOf } from '../runtime/starting.ts'
import { VERSION } from '../runtime/version.ts'
import type { CallObserver, CallReport } from './call-scope.ts'
import { listSources, type MeasuredParts, registerSources } from './gauges.ts'
import { boundLabels, countInferences } from './inference-metrics.ts'
import { type CallEnd, DURATION_BUCKETS, METRICS_PREFIX } from './metric-forms.ts'

/** The last bucket is the committer's limit. */
const BATCH_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128]

type Address = { readonly host: string; readonly port: number }

/** Counts events when they happen. gauges.ts has the values that are read at each scrape. */
type Meter = {
  readonly registry: Registry
  readonly calls: CallObserver
  /** `durationMs`: from the enclave's reply until the records were stored durably. */
  countCommit(commit: { readonly records: number; readonly durationMs: number }): void
  /** Counts a failed commit: another gateway had changed the log or used the nonce. */
  countRace(): void
  /** `outcome`: `listed`, or the reason for a missing list. */
  countModelList(asked: { readonly provider: string; readonly outcome: string }): void
  /** `outcome`: `collected`, or the reason for missing evidence. */
  countCollection(collected: { readonly provider: string; readonly outcome: string }): void
  /** The provider did not have this TLS key before. */
  countProviderKey(provider: string): void
}

export type Metrics = Meter & {
  /**
   * Serves the counters, and gauges that are read from `parts`. Simultaneous scrapes share one
   * reading. Returns the server's URL. Rejects with StartFailure.
   */
  serve(parts: MeasuredParts, onStarted: OnStarted): Promise<string>
}

/** Returns null if metrics are not served. */
export function openMetrics({
  metrics: at,
  isStaging,
}: {
  readonly metrics: Address | null
  readonly isStaging: boolean
}): Metrics | null {
  if (at === null) return null
  const meter = createMeter({ isStaging })
  return {
    ...meter,
    async serve(parts, onStarted) {
      const { registry } = meter
      const refresh = registerSources(registry, listSources(parts))
      const read = singleFlight(() => refresh().then(() => registry.metrics()))
      const text = { contentType: registry.contentType, read }
      const server = await startMetricsServer(text, at).catch((error: unknown) => {
        throw new StartFailure(
          `metrics: METRICS_HOST ${at.host} and METRICS_PORT ${at.port} cannot be listened on (${systemCodeOf(error)})`,
        )
      })
      onStarted(() => server.close())
      return server.url
    },
  }
}

/**
 * Labels come from the router's patterns, from lists in our code, and from status codes. A label
 * from a caller's text could create any number of series.
 */
export function createMeter({ isStaging = false }: { readonly isStaging?: boolean } = {}): Meter {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  for (const name of MISNAMED) registry.removeSingleMetric(name)
  describeBuild(registry)
  describeMode(registry, isStaging)
  return {
    registry,
    calls: observeCalls(registry),
    ...countCommits(registry),
    ...countModelLists(registry),
    ...countCollections(registry),
  }
}

/** prom-client's gauges whose names end like counters. nodejs_active_resources replaces them. */
const MISNAMED = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
]

function describeBuild(registry: Registry): void {
  const build = new Gauge({
    name: `${METRICS_PREFIX}build_info`,
    help: 'Always 1; version: of this gateway, node: of Node.js',
    labelNames: ['version', 'node'] as const,
    registers: [registry],
  })
  build.set({ version: VERSION, node: process.versions.node }, 1)
}

function describeMode(registry: Registry, isStaging: boolean): void {
  const staging = new Gauge({
    name: `${METRICS_PREFIX}staging`,
    help: '1 in staging: the security module is simulated, and no evidence of this gateway proves anything',
    registers: [registry],
  })
  staging.set(isStaging ? 1 : 0)
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

  const countInference = countInferences(registry)

  function count(report: CallReport): void {
    inFlight.dec()
    const route = report.route ?? 'none'
    const method = METHODS.has(report.method) ? report.method : 'other'
    const end = endOf(report)
    calls.inc({ method, route, status: String(report.status), end })
    countInference(report, end)
    durations.observe({ route, phase: 'whole' }, report.durationMs / 1000)
    if (report.headMs !== null) durations.observe({ route, phase: 'head' }, report.headMs / 1000)
    if (report.firstEventMs !== null) firstTokens.observe({ route }, report.firstEventMs / 1000)
    for (const { phase, durationMs } of report.phases)
      durations.observe({ route, phase }, durationMs / 1000)
  }

  return {
    begin() {
      inFlight.inc()
      return { traceparent: null, end: count }
    },
  }
}

/** A stream always has status 200, so only its error event shows a failure. */
function endOf({ isWhole, status, error }: CallReport): CallEnd {
  if (!isWhole) return 'cut'
  return error !== null && status < 400 ? 'error' : 'whole'
}

/** Other methods are counted as `other`. */
const METHODS: ReadonlySet<string> = new Set([
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
])

function countCommits(registry: Registry): Pick<Meter, 'countCommit' | 'countRace'> {
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
  const races = new Counter({
    name: `${METRICS_PREFIX}commit_races_total`,
    help: 'Commits that another gateway on the database made first, or whose nonce it took',
    registers,
  })
  return {
    countCommit(commit) {
      records.observe(commit.records)
      durations.observe(commit.durationMs / 1000)
    },
    countRace: () => races.inc(),
  }
}

function countModelLists(registry: Registry): Pick<Meter, 'countModelList'> {
  const lists = new Counter({
    name: `${METRICS_PREFIX}provider_model_lists_total`,
    help: 'Times that a provider was asked which models it has; outcome: listed, refused, unreachable, timeout, answer_too_large, bad_answer',
    labelNames: ['provider', 'outcome'] as const,
    registers: [registry],
  })
  const providerOf = boundLabels()
  return {
    countModelList: ({ provider, outcome }) =>
      lists.inc({ provider: providerOf(provider), outcome }),
  }
}

function countCollections(registry: Registry): Pick<Meter, 'countCollection' | 'countProviderKey'> {
  const registers = [registry]
  const collections = new Counter({
    name: `${METRICS_PREFIX}provider_evidence_collections_total`,
    help: "Times that this gateway collected a provider's evidence; outcome: collected, refused, unreachable, timeout, answer_too_large, bad_answer, challenge_mismatch, key_missing, key_mismatch",
    labelNames: ['provider', 'outcome'] as const,
    registers,
  })
  const keys = new Counter({
    name: `${METRICS_PREFIX}provider_key_changes_total`,
    help: 'TLS keys of attested providers that were seen for the first time, after others',
    labelNames: ['provider'] as const,
    registers,
  })
  const providerOf = boundLabels()
  return {
    countCollection: ({ provider, outcome }) =>
      collections.inc({ provider: providerOf(provider), outcome }),
    countProviderKey: (provider) => keys.inc({ provider: providerOf(provider) }),
  }
}

/** Usually, one or two Prometheus servers connect. */
const CONNECTIONS_MAX = 32
const REQUEST_TIMEOUT_MS = 10_000

type MetricsText = { readonly contentType: string; readonly read: () => Promise<string> }

export type MetricsServer = { readonly url: string; close(): Promise<void> }

/**
 * Serves only `GET /metrics`. Port 0 takes a free port. No key is required: every program that can
 * connect can read the metrics. Rejects with the system's error when the port is taken.
 */
export async function startMetricsServer(
  metrics: MetricsText,
  { host, port }: Address,
): Promise<MetricsServer> {
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
    if (request.url?.split('?', 1)[0] !== '/metrics') end(response, 404, 'Only /metrics is here\n')
    else if (request.method !== 'GET' && request.method !== 'HEAD')
      end(response, 405, 'Only GET\n', { allow: 'GET, HEAD' })
    else void answer(metrics, response)
  })
  server.maxConnections = CONNECTIONS_MAX
  server.listen({ host, port })
  await once(server, 'listening')
  return { url: urlOf(server), close: () => stop(server) }
}

async function answer({ contentType, read }: MetricsText, response: ServerResponse): Promise<void> {
  try {
    end(response, 200, await read(), { 'content-type': contentType })
  } catch {
    end(response, 500, 'The metrics could not be read\n')
  }
}

function end(
  response: ServerResponse,
  status: number,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.on('error', () => {})
  response
    .writeHead(status, {
      'content-type': 'text/plain; charset=utf-8',
      'content-length': Buffer.byteLength(text),
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
      ...headers,
    })
    .end(text)
}

function urlOf(server: Server): string {
  const { address, family, port } = server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}/metrics`
}

async function stop(server: Server): Promise<void> {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
}
