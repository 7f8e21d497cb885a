import {
  type Attributes,
  type Context,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import type { CallObserver, CallReport, InferenceFacts, PhaseReport } from './call-scope.ts'
import { contextOf, traceparentOf } from './tracer.ts'

/**
 * Traces calls: a server span for each, below it one for the inference with what GenAI's semantic conventions say of it, one
 * for each phase that was waited for, and one that the enclave's receipt gives the times of. The enclave itself sends nothing.
 */
export function traceCalls(tracer: Tracer): CallObserver {
  return {
    begin({ startedAtMs, traceparent }) {
      const parent = contextOf(traceparent)
      const span = tracer.startSpan('call', { kind: SpanKind.SERVER, startTime: startedAtMs }, parent)
      return {
        traceparent: traceparentOf(span),
        end: (report) => {
          if (span.isRecording()) describe(tracer, span, { report, within: trace.setSpan(parent, span) })
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
  if (isFailed(report)) span.setStatus({ code: SpanStatusCode.ERROR }).setAttributes(errorTypeOf(report))
  if (report.inference.operation !== undefined) spanInference(tracer, report, within)
  for (const phase of report.phases) spanPhase(tracer, phase, within)
  const { enclave } = report.inference
  if (enclave !== undefined) {
    const options = { kind: SpanKind.INTERNAL, startTime: enclave.startedAtMs }
    tracer.startSpan('enclave completion', options, within).end(enclave.finishedAtMs)
  }
}

/** From the first wait for a model to the end of the answer, or of the wait where the answer is no stream. */
function spanInference(tracer: Tracer, report: CallReport, within: Context): void {
  const waits = report.phases.filter(({ phase }) => phase === 'enclave' || phase === 'node')
  const [first] = waits
  if (first === undefined) return
  const isUnanswered = waits.every((wait) => wait.isFailed)
  // A name that nothing serves may be any text at all.
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

/** The conventions know no name for a search that is no agent's. */
const OPERATION_NAMES: Readonly<Record<InferenceFacts['operation'] & string, string>> = {
  chat: 'chat',
  embeddings: 'embeddings',
  images: 'generate_content',
  search: 'search',
}

function spanPhase(tracer: Tracer, phase: PhaseReport, within: Context): void {
  const { startedAtMs, durationMs, isFailed } = phase
  const span = tracer.startSpan(phase.phase, { kind: SpanKind.INTERNAL, startTime: startedAtMs }, within)
  if (isFailed) span.setStatus({ code: SpanStatusCode.ERROR })
  span.end(startedAtMs + durationMs)
}

/** By the conventions for servers: from 500 up. Of a stream what its error event says, whose own status is 200. */
function isFailed({ status, error }: CallReport): boolean {
  return Math.max(status, error?.status ?? 0) >= 500
}

/** What the log line has as `error`; the status where there is no code. */
function errorTypeOf({ status, error }: CallReport): Attributes {
  if (error === null && status < 400) return {}
  return { 'error.type': error?.code ?? String(status) }
}

function endOf({ startedAtMs, durationMs }: CallReport): number {
  return startedAtMs + durationMs
}
