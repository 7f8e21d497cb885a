import { type Context, ROOT_CONTEXT, type Span, type Tracer, trace } from '@opentelemetry/api'
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
import type { Logger } from './logger.ts'
import type { TraceConfig } from './trace-settings.ts'

/** A tracer of this process, and how to end it. */
export type Traces = {
  readonly tracer: Tracer
  /** Sends what is left, for CLOSE_TIMEOUT_MS at most. Never rejects. */
  close(): Promise<void>
}

/** How often a collector that cannot be reached is logged, milliseconds. */
const WARN_INTERVAL_MS = 60_000

/** How long one export may take, and the last one at the end of the process, milliseconds. */
const EXPORT_TIMEOUT_MS = 5_000
export const CLOSE_TIMEOUT_MS = 6_000

/** Longest text of an attribute: a name of a model may be 256 characters long. */
const VALUE_LENGTH_MAX = 256

/**
 * Sends spans to an OTLP collector (HTTP, protobuf), in batches, beside the calls: at most 2,048 wait, further ones are
 * dropped. Nothing is registered globally, so no library adds spans of its own. Resolves calls to none when it is away.
 */
export function openTraces(
  config: TraceConfig,
  { version, now, log }: { readonly version: string; readonly now: () => number; readonly log: Logger },
): Traces {
  const exporter = new OTLPTraceExporter({
    url: config.url,
    headers: config.headers,
    timeoutMillis: EXPORT_TIMEOUT_MS,
  })
  const provider = new TracerProvider({
    resource: resourceFromAttributes({ 'service.name': config.serviceName, 'service.version': version }),
    // A caller's own decision comes with its trace context; ours is for calls without one.
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
    close: async () => {
      const { promise, resolve } = Promise.withResolvers<void>()
      const timer = setTimeout(resolve, CLOSE_TIMEOUT_MS)
      await Promise.race([provider.shutdown().catch(() => {}), promise])
      clearTimeout(timer)
    },
  }
}

/** The context that a W3C `traceparent` names; that of no trace when there is none, or it is malformed. */
export function contextOf(traceparent: string | null): Context {
  const parent = traceparent === null ? null : parseTraceParent(traceparent)
  return parent === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, { ...parent, isRemote: true })
}

/** W3C `traceparent` of a span; null when it is not sampled. */
export function traceparentOf(span: Span): string | null {
  if (!span.isRecording()) return null
  const { traceId, spanId, traceFlags } = span.spanContext()
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`
}

/**
 * Logs that spans are lost, now and then: on the way to which `endpoint` (an origin, for the URL may hold credentials), and the error's
 * code, never what the collector answered.
 */
function warning(
  exporter: SpanExporter,
  options: { readonly endpoint: string; readonly now: () => number; readonly log: Logger },
): SpanExporter {
  const { endpoint, now, log } = options
  let warnedAtMs = Number.NEGATIVE_INFINITY
  return {
    export(spans: ReadableSpan[], done: (result: ExportResult) => void) {
      exporter.export(spans, (result) => {
        if (result.code === ExportResultCode.FAILED && now() - warnedAtMs >= WARN_INTERVAL_MS) {
          warnedAtMs = now()
          log.warn(
            { spans: spans.length, endpoint, error: causeOf(result.error) },
            'traces could not be sent',
          )
        }
        done(result)
      })
    },
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => exporter.forceFlush?.(),
  }
}

/** The system's code, the status that the collector answered with, or what kind of error it was: messages may repeat the collector. */
function causeOf(error: Error | undefined): string | number {
  if (error === undefined) return 'unknown'
  const { code } = error as { readonly code?: unknown }
  if (typeof code === 'string' || typeof code === 'number') return code
  // The exporter's error of a collector that does not answer in EXPORT_TIMEOUT_MS has no code.
  return error.message === 'Request timed out' ? 'timeout' : error.name
}
