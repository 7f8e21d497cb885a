import {
  type Attributes,
  type Context,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import { type ExportResult, ExportResultCode, parseTraceParent } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { resourceFromAttributes } from '@opentelemetry/resources'
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace'
import { createFaultLog } from '../runtime/fault-log.ts'
import { VERSION } from '../runtime/version.ts'
import type { CallObserver, CallReport, InferenceFacts, PhaseReport } from './call-scope.ts'
import type { Logger, Opening } from './logger.ts'
import type { TraceConfig } from './trace-settings.ts'

export type Traces = {
  readonly tracer: Tracer
  /** Sends the waiting spans, for at most CLOSE_TIMEOUT_MS. Never rejects. */
  close(): Promise<void>
}

/** A collector that cannot be reached is logged at most once in this time. */
const WARN_INTERVAL_MS = 60_000

const EXPORT_TIMEOUT_MS = 5_000
const CLOSE_TIMEOUT_MS = 6_000

/** A model's name has at most 256 characters. */
const VALUE_LENGTH_MAX = 256

/** Returns an empty list if no collector is configured. */
export function openCallTraces(
  config: TraceConfig | null,
  { log, onStarted }: Opening,
): readonly CallObserver[] {
  if (config === null) return []
  const traces = openTraces(config, { version: VERSION, now: Date.now, log })
  onStarted(() => traces.close())
  return [traceCalls(traces.tracer)]
}

/**
 * Sends spans to an OTLP collector (HTTP, protobuf), in batches. Calls do not wait for the
 * collector, and succeed without it. At most 2,048 spans wait; more are dropped. Nothing is
 * registered globally, so no library adds its own spans.
 */
export function openTraces(
  config: TraceConfig,
  {
    version,
    now,
    log,
  }: { readonly version: string; readonly now: () => number; readonly log: Logger },
): Traces {
  const exporter = new OTLPTraceExporter({
    url: config.url,
    headers: config.headers,
    timeoutMillis: EXPORT_TIMEOUT_MS,
  })
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      'service.name': config.serviceName,
      'service.version': version,
    }),
    // A caller's trace context decides whether the call is traced. Our ratio applies to other
    // calls.
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(config.ratio) }),
    spanLimits: { attributeValueLengthLimit: VALUE_LENGTH_MAX },
    spanProcessors: [
      new BatchSpanProcessor({
        exporter: warning(exporter, { endpoint: new URL(config.url).origin, now, log }),
        scheduledDelayMillis: 1_000,
        exportTimeoutMillis: EXPORT_TIMEOUT_MS,
      }),
    ],
  })
  return {
    tracer: provider.getTracer('affidavit', version),
    close: () =>
      new Promise((resolve) => {
        const timer = setTimeout(resolve, CLOSE_TIMEOUT_MS)
        void provider
          .shutdown()
          .catch(() => {})
          .finally(() => clearTimeout(timer))
          .then(resolve)
      }),
  }
}

/** Returns an empty context if the `traceparent` is missing or malformed. */
export function contextOf(traceparent: string | null): Context {
  const parent = traceparent === null ? null : parseTraceParent(traceparent)
  return parent === null
    ? ROOT_CONTEXT
    : trace.setSpanContext(ROOT_CONTEXT, { ...parent, isRemote: true })
}

/** Null when the span is not sampled. */
function traceparentOf(span: Span): string | null {
  if (!span.isRecording()) return null
  const { traceId, spanId, traceFlags } = span.spanContext()
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`
}

/**
 * Logs that spans are lost. `endpoint` is only an origin, because the URL may contain credentials.
 * The collector's answer is never logged.
 */
function warning(
  exporter: SpanExporter,
  options: { readonly endpoint: string; readonly now: () => number; readonly log: Logger },
): SpanExporter {
  const { endpoint, now, log } = options
  const faults = createFaultLog(WARN_INTERVAL_MS, now)
  return {
    export(spans: ReadableSpan[], done: (result: ExportResult) => void) {
      exporter.export(spans, (result) => {
        if (result.code === ExportResultCode.FAILED && faults.isDue())
          log.warn(
            { spans: spans.length, endpoint, error: causeOf(result.error) },
            'traces could not be sent',
          )
        done(result)
      })
    },
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => exporter.forceFlush?.(),
  }
}

/** A message may repeat the collector's answer, so it is not used. */
function causeOf(error: Error | undefined): string | number {
  if (error === undefined) return 'unknown'
  const { code } = error as { readonly code?: unknown }
  if (typeof code === 'string' || typeof code === 'number') return code
  // After EXPORT_TIMEOUT_MS without an answer, the exporter throws an error without a code.
  return error.message === 'Request timed out' ? 'timeout' : error.name
}

/**
 * Each call has a server span. Below it are a span for the inference (OpenTelemetry's GenAI
 * conventions), a span for each phase, and a span with the times from the enclave's receipt. The
 * enclave itself sends no spans.
 */
export function traceCalls(tracer: Tracer): CallObserver {
  return {
    begin({ startedAtMs, traceparent }) {
      const parent = contextOf(traceparent)
      const span = tracer.startSpan(
        'call',
        { kind: SpanKind.SERVER, startTime: startedAtMs },
        parent,
      )
      return {
        traceparent: traceparentOf(span),
        end: (report) => {
          if (span.isRecording())
            describe(tracer, span, { report, within: trace.setSpan(parent, span) })
          span.end(endOf(report))
        },
      }
    },
  }
}

type Described = { readonly report: CallReport; readonly within: Context }

function describe(tracer: Tracer, span: Span, { report, within }: Described): void {
  const { method, route, status, isWhole, requestId } = report
  span.updateName(route === null ? method : `${method} ${route}`)
  span.setAttributes({
    'http.request.method': method,
    ...(route === null ? {} : { 'http.route': route }),
    'http.response.status_code': status,
    'affidavit.request_id': requestId,
    'affidavit.answer.is_whole': isWhole,
  })
  if (isFailed(report))
    span.setStatus({ code: SpanStatusCode.ERROR }).setAttributes(errorTypeOf(report))
  if (report.inference.operation !== undefined) spanInference(tracer, report, within)
  for (const phase of report.phases) spanPhase(tracer, phase, within)
  const { enclave } = report.inference
  if (enclave !== undefined) {
    const options = { kind: SpanKind.INTERNAL, startTime: enclave.startedAtMs }
    tracer.startSpan('enclave completion', options, within).end(enclave.finishedAtMs)
  }
}

/**
 * Adds the span for the inference. The span begins when the call first waits for a model. It ends
 * when a stream ends, or, without a stream, when the wait ends.
 */
function spanInference(tracer: Tracer, report: CallReport, within: Context): void {
  const waits = report.phases.filter(({ phase }) => phase === 'enclave' || phase === 'node')
  const [first] = waits
  if (first === undefined) return
  const isUnanswered = waits.every((wait) => wait.isFailed)
  // The model of an unanswered call may be any text from the caller, so it is left out.
  const inference = isUnanswered ? { ...report.inference, model: undefined } : report.inference
  const { operation, model } = inference
  const name = model === undefined ? String(operation) : `${operation} ${model}`
  const options = {
    kind: SpanKind.CLIENT,
    startTime: first.startedAtMs,
    attributes: genAiOf(inference, report),
  }
  const span = tracer.startSpan(name, options, within)
  if (isUnanswered || isFailed(report))
    span.setStatus({ code: SpanStatusCode.ERROR }).setAttributes(errorTypeOf(report))
  const waited = Math.max(...waits.map(({ startedAtMs, durationMs }) => startedAtMs + durationMs))
  span.end(report.firstEventMs === null ? waited : endOf(report))
}

/** OpenTelemetry's semantic conventions for generative AI. */
function genAiOf(
  { operation, model, responseModel, provider, inputTokens, outputTokens }: InferenceFacts,
  { firstEventMs }: CallReport,
): Attributes {
  const attributes: Record<string, string | number | undefined> = {
    'gen_ai.operation.name': operation === undefined ? undefined : OPERATION_NAMES[operation],
    'gen_ai.request.model': model,
    'gen_ai.response.model': responseModel,
    'gen_ai.provider.name': provider,
    'gen_ai.usage.input_tokens': inputTokens,
    'gen_ai.usage.output_tokens': outputTokens,
    'gen_ai.response.time_to_first_chunk': firstEventMs === null ? undefined : firstEventMs / 1000,
  }
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined))
}

/** In the conventions, a search is only an action of an agent, so the name `search` is ours. */
const OPERATION_NAMES: Readonly<Record<InferenceFacts['operation'] & string, string>> = {
  chat: 'chat',
  embeddings: 'embeddings',
  images: 'generate_content',
  search: 'search',
}

function spanPhase(tracer: Tracer, phase: PhaseReport, within: Context): void {
  const { startedAtMs, durationMs, isFailed } = phase
  const span = tracer.startSpan(
    phase.phase,
    { kind: SpanKind.INTERNAL, startTime: startedAtMs },
    within,
  )
  if (isFailed) span.setStatus({ code: SpanStatusCode.ERROR })
  span.end(startedAtMs + durationMs)
}

/**
 * By the conventions, a server span failed if the status is 500 or more. A stream has status 200,
 * so the status of its error event is used.
 */
function isFailed({ status, error }: CallReport): boolean {
  return Math.max(status, error?.status ?? 0) >= 500
}

/** Returns the same error type as the log line: the error's code, or else the status. */
function errorTypeOf({ status, error }: CallReport): Attributes {
  if (error === null && status < 400) return {}
  return { 'error.type': error?.code ?? String(status) }
}

function endOf({ startedAtMs, durationMs }: CallReport): number {
  return startedAtMs + durationMs
}
