import type { ServerResponse } from 'node:http'
import {
  type CallObserver,
  type CallReport,
  type CallScope,
  type InferenceFacts,
  openScope,
} from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import { familyOf } from '../observability/model-family.ts'
import { createClientAddresses } from './client-address.ts'
import type { ApiContext, ApiMiddleware } from './context.ts'
import { type ApiError, asApiError } from './errors.ts'

/**
 * A caller's own `x-request-id` is taken when it has this form; it is stored, logged and sent back.
 */
const REQUEST_ID_PATTERN = /^[\w.:-]{1,128}$/

/** Longest path that a log line repeats. */
const LOGGED_PATH_LENGTH_MAX = 200

/**
 * Opens every call: gives it an id, the headers that all answers have, and a log line when it is
 * over, however it ends. `now` gives milliseconds.
 */
export function openRequest(options: {
  readonly now: () => number
  readonly makeRequestId: () => string
  readonly logsRequests: boolean
  /** Addresses of proxies whose word about their callers is believed. */
  readonly trustedProxies: readonly string[]
  readonly log: Logger
}): ApiMiddleware {
  const { now, makeRequestId, logsRequests, log } = options
  const clientOf = createClientAddresses(options.trustedProxies)
  return async (context, next) => {
    const given = context.req.headers['x-request-id']
    const requestId =
      typeof given === 'string' && REQUEST_ID_PATTERN.test(given) ? given : makeRequestId()
    const startedAtMs = now()
    // A connection that is closed no longer has an address.
    const client = clientOf(context.req)
    const unset = {
      caller: null,
      headAtMs: null,
      firstEventAtMs: null,
      failure: null,
      scope: null,
      isRoutine: false,
    } as const
    context.state = { requestId, startedAtMs, client, ...unset }
    context.set('x-request-id', requestId)
    context.set(SAFE_HEADERS)
    if (logsRequests)
      context.res.once('close', () =>
        logRequest(log, context, { client, durationMs: now() - startedAtMs }),
      )
    return next()
  }
}

/**
 * On every answer; a route may set others. Answers are for their caller, and are not pages: an
 * answer that is shown as a page could load nothing, and no page could frame it.
 * `strict-transport-security` is for what ends TLS in front of this server.
 */
const SAFE_HEADERS = {
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
} as const

/** Sets how long the call took until its answer began. Call it right before the head goes out. */
export function recordProcessingTime(context: ApiContext, now: () => number): void {
  const headAtMs = now()
  context.state.headAtMs = headAtMs
  context.set('openai-processing-ms', String(Math.round(headAtMs - context.state.startedAtMs)))
}

/** All who know the id of a kept image may see it, so readers of logs must not see the id. */
const CAPABILITY = /^(\/v1\/images\/files\/).*$/s

/** A model's name that is logged, where a model answered: any other name may be any text. */
const MODEL_NAME = /^[\w.:/@+-]{1,128}$/

/**
 * The path is logged without the query: ids and hashes. `isWhole` distinguishes a whole stream from
 * a cut one, `error` shows a stream that ended with an error event. Of an error only the code is
 * logged: its message may repeat what the caller sent. A fault of our side, from 500 up, is a
 * warning.
 */
function logRequest(
  log: Logger,
  { req, res, state, path }: ApiContext,
  { client, durationMs }: { readonly client: string | null; readonly durationMs: number },
): void {
  const status = reportedStatusOf(res)
  const firstEventMs =
    state.firstEventAtMs === null ? undefined : state.firstEventAtMs - state.startedAtMs
  const line = {
    requestId: state.requestId,
    method: req.method,
    path: path.replace(CAPABILITY, '$1…').slice(0, LOGGED_PATH_LENGTH_MAX),
    status,
    error: state.failure?.code,
    accountId: state.caller?.accountId,
    keyId: state.caller?.keyId,
    client: client ?? undefined,
    ...inferenceLine(state.scope, state.failure === null && status < 400),
    firstTokenMs: firstEventMs === undefined ? undefined : tenths(firstEventMs),
    durationMs: tenths(durationMs),
    isWhole: res.writableFinished,
  }
  if (Math.max(status, state.failure?.status ?? 0) >= 500) log.warn(line, 'request')
  else if (state.isRoutine && (status < 400 || status === 404)) log.debug(line, 'request')
  else log.info(line, 'request')
}

/**
 * What is logged about an inference. A name that nothing served may be a prompt: only its family is
 * logged. How long a provider took is in receipts; for a node it is not known.
 */
function inferenceLine(
  scope: CallScope | null,
  wentWell: boolean,
): Readonly<Record<string, unknown>> {
  const inference: InferenceFacts = scope?.inference ?? {}
  const { operation, model = '', provider, inputTokens, outputTokens, enclave } = inference
  if (operation === undefined) return {}
  const isAnswered = wentWell || inputTokens !== undefined || enclave !== undefined
  return {
    ...(isAnswered && MODEL_NAME.test(model) ? { model } : { modelFamily: familyOf(model) }),
    provider: provider === '' ? undefined : provider,
    inputTokens,
    outputTokens,
    providerMs:
      enclave === undefined ? undefined : tenths(enclave.finishedAtMs - enclave.startedAtMs),
  }
}

function tenths(ms: number): number {
  return Math.round(ms * 10) / 10
}

/**
 * Gives the error that a caller receives for a fault, and keeps it in the call's state for reports
 * of the call. Logs what the caller does not receive: an error that is not ours, or the cause of
 * one that is.
 */
export function recordFailure(
  { state }: Pick<ApiContext, 'state'>,
  error: unknown,
  log: Logger,
): ApiError {
  const apiError = asApiError(error)
  const { requestId } = state
  state.failure = { code: apiError.code, status: apiError.status }
  if (apiError.cause !== undefined)
    log.error({ requestId, err: apiError.cause }, 'call could not be served')
  else if (apiError !== error) log.error({ requestId, err: error }, 'unexpected error')
  return apiError
}

/**
 * Reports every call to `observers`, and opens its scope, which the log line reads too. Right
 * behind openRequest, so that it sees the whole call. `now` gives milliseconds.
 */
export function observeCalls({
  observers,
  logsRequests,
  now,
}: {
  readonly observers: readonly CallObserver[]
  readonly logsRequests: boolean
  readonly now: () => number
}): ApiMiddleware {
  if (observers.length === 0 && !logsRequests) return (_, next) => next()
  return (context, next) => {
    const { startedAtMs } = context.state
    const call = { startedAtMs, traceparent: traceparentOf(context) }
    const watches = observers.map((observer) => observer.begin(call))
    const traceparent = watches.find((watch) => watch.traceparent !== null)?.traceparent ?? null
    const { scope, result } = openScope(traceparent, (opened) => {
      context.state.scope = opened
      return next()
    })
    context.res.once('close', () => {
      const report = reportOf(context, scope, now())
      for (const watch of watches) watch.end(report)
    })
    return result
  }
}

function traceparentOf({ req }: ApiContext): string | null {
  const { traceparent } = req.headers
  return typeof traceparent === 'string' ? traceparent : null
}

function reportOf(
  context: ApiContext,
  { phases, inference }: CallScope,
  endedAtMs: number,
): CallReport {
  const { req, res, state } = context
  const { startedAtMs, requestId } = state
  const since = (atMs: number | null) => (atMs === null ? null : atMs - startedAtMs)
  return {
    method: req.method ?? '',
    route: routeOf(context),
    status: reportedStatusOf(res),
    error: state.failure,
    isWhole: res.writableFinished,
    requestId,
    startedAtMs,
    durationMs: endedAtMs - startedAtMs,
    headMs: since(state.headAtMs),
    firstEventMs: since(state.firstEventAtMs),
    phases,
    inference,
  }
}

/** The router leaves the pattern that it found, unless nothing answers this method there. */
function routeOf(context: ApiContext & { readonly _matchedRoute?: unknown }): string | null {
  return typeof context._matchedRoute === 'string' ? context._matchedRoute : null
}

/**
 * The status of a call whose connection closed before any answer went out: it is never sent. It is
 * nginx's convention, in no standard.
 */
const CALLER_LEFT_STATUS = 499

/**
 * Status of a call that is over, for reports. An answer that was never sent does not have a status:
 * Koa begins with 404, which does not count.
 */
function reportedStatusOf({ headersSent, statusCode }: ServerResponse): number {
  return headersSent ? statusCode : CALLER_LEFT_STATUS
}
