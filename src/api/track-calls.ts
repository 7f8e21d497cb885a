import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
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
import type { Face } from './faces.ts'

/** Only a matching `x-request-id` of a caller is used: the id is stored, logged and sent back. */
const REQUEST_ID_PATTERN = /^[\w.:-]{1,128}$/

/** A longer path is cut. */
const LOGGED_PATH_LENGTH_MAX = 200

/**
 * Sets a call's id and the headers of all answers. Writes a log line when the call ends, however it
 * ends. `now` returns milliseconds.
 */
export function openRequest(options: {
  readonly now: () => number
  readonly makeRequestId: () => string
  readonly logsRequests: boolean
  /** Proxies that are trusted to name the client's address. */
  readonly trustedProxies: readonly string[]
  readonly faceOf: (path: string, headers: IncomingHttpHeaders) => Face
  readonly log: Logger
}): ApiMiddleware {
  const { now, makeRequestId, logsRequests, faceOf, log } = options
  const clientOf = createClientAddresses(options.trustedProxies)
  return async (context, next) => {
    const given = context.req.headers['x-request-id']
    const requestId =
      typeof given === 'string' && REQUEST_ID_PATTERN.test(given) ? given : makeRequestId()
    const startedAtMs = now()
    // Read now, because a closed connection has no address.
    const client = clientOf(context.req)
    const face = faceOf(context.path, context.req.headers)
    const unset = {
      caller: null,
      operator: null,
      headAtMs: null,
      firstEventAtMs: null,
      failure: null,
      scope: null,
      isRoutine: false,
    } as const
    context.state = { requestId, startedAtMs, client, face, ...unset }
    context.set('x-request-id', requestId)
    context.set(face.callHeaders(context.state))
    context.set(SAFE_HEADERS)
    if (logsRequests)
      context.res.once('close', () =>
        logRequest(log, context, { client, durationMs: now() - startedAtMs }),
      )
    return next()
  }
}

/**
 * Headers of every answer, unless a route sets other values. Caches must not store an answer. A
 * browser that shows an answer as a page loads nothing for it, and no page can frame it.
 */
const SAFE_HEADERS = {
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
} as const

/** Call it right before the head is sent. */
export function recordProcessingTime(context: ApiContext, now: () => number): void {
  const headAtMs = now()
  context.state.headAtMs = headAtMs
  context.set('openai-processing-ms', String(Math.round(headAtMs - context.state.startedAtMs)))
}

/** The id of a stored image is enough to see the image, so the log must not contain the id. */
const CAPABILITY = /^(\/v1\/images\/files\/).*$/s

/** A name of this form is logged if a model answered. Other names could be any text. */
const MODEL_NAME = /^[\w.:/@+-]{1,128}$/

/**
 * Logs the path without the query, because the query contains ids and hashes. Logs only the code of
 * an error, because the message may repeat the caller's text. Errors that this service causes (500
 * and above) are warnings.
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
 * If no model answered, the model's name may be a prompt. Then only the model's family is logged.
 * The provider's time comes from the enclave. The time of a node is not known.
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
 * Returns the error that a caller receives, and stores it in the call's state. Logs what the caller
 * does not receive: an unexpected error, or an ApiError's cause.
 */
export function recordFailure(
  { state }: Pick<ApiContext, 'state'>,
  error: unknown,
  log: Logger,
): ApiError {
  const apiError = asApiError(error)
  const { requestId, face } = state
  state.failure = { code: apiError.code, status: face.statusOf(apiError) }
  if (apiError.cause !== undefined)
    log.error({ requestId, err: apiError.cause }, 'call could not be served')
  else if (apiError !== error) log.error({ requestId, err: error }, 'unexpected error')
  return apiError
}

/**
 * Reports every call to `observers`. Opens the call's scope, which the log line uses. Must run
 * right after openRequest, so that the report covers the whole call. `now` returns milliseconds.
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

/** The router sets the pattern, unless the path exists only with other methods. */
function routeOf(context: ApiContext & { readonly _matchedRoute?: unknown }): string | null {
  return typeof context._matchedRoute === 'string' ? context._matchedRoute : null
}

/** Reported, but never sent, if the connection closed before any answer. nginx uses this status. */
const CALLER_LEFT_STATUS = 499

/** If no answer was sent, Koa's initial 404 does not count. */
function reportedStatusOf({ headersSent, statusCode }: ServerResponse): number {
  return headersSent ? statusCode : CALLER_LEFT_STATUS
}
