import { SpanKind, SpanStatusCode, type Tracer } from '@opentelemetry/api'
import { contextOf } from '../observability/traces.ts'
import type { RunWatcher } from './runs.ts'

/**
 * Uses the traces that the gateway names. A run without a trace is not traced. Spans contain no
 * text from a request or an answer.
 */
export function traceRuns(tracer: Tracer): RunWatcher {
  return ({ model, traceparent }) => {
    if (traceparent === null) return () => {}
    const attributes = { 'gen_ai.operation.name': 'chat', 'gen_ai.request.model': model }
    const span = tracer.startSpan(
      `chat ${model}`,
      { kind: SpanKind.SERVER, attributes },
      contextOf(traceparent),
    )
    return (outcome) => {
      span.setAttribute('affidavit.run.outcome', outcome.kind)
      if (outcome.kind === 'failed') {
        span.setAttribute('error.type', String(outcome.statusCode))
        span.setStatus({ code: SpanStatusCode.ERROR })
      }
      span.end()
    }
  }
}
