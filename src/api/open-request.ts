import type { Logger } from '../observability/logger.ts'
import type { ApiContext, ApiMiddleware } from './context.ts'
import { reportedStatusOf } from './reported-status.ts'

/** A caller's own `x-request-id` is taken when it has this form; it is stored, logged and sent back. */
export const REQUEST_ID_PATTERN = /^[\w.:-]{1,128}$/

/** Longest path that a log line repeats. */
export const LOGGED_PATH_LENGTH_MAX = 200

/**
 * Opens every call: gives it an id, the headers that all answers have, and a log line when it is over, however it ends.
 * `now` gives milliseconds.
 */
export function openRequest(options: {
  readonly now: () => number
  readonly makeRequestId: () => string
  readonly logsRequests: boolean
  readonly log: Logger
}): ApiMiddleware {
  const { now, makeRequestId, logsRequests, log } = options
  return async (context, next) => {
    const given = context.req.headers['x-request-id']
    const requestId = typeof given === 'string' && REQUEST_ID_PATTERN.test(given) ? given : makeRequestId()
    const startedAtMs = now()
    const unset = {
      caller: null,
      headAtMs: null,
      firstEventAtMs: null,
      failure: null,
      isProbe: false,
    } as const
    context.state = { requestId, startedAtMs, ...unset }
    context.set('x-request-id', requestId)
    context.set(SAFE_HEADERS)
    if (logsRequests) context.res.once('close', () => logRequest(log, context, now() - startedAtMs))
    return next()
  }
}

/**
 * On every answer; a route may set others. Answers are for whoever asked, and are no pages: were one shown as a page, it
 * could load nothing and be framed by nobody. `strict-transport-security` is for what ends TLS in front of this server.
 */
const SAFE_HEADERS = {
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
} as const

/** Sets how long the call took until its answer began. Call it right before the head goes out. */
export function noteProcessingTime(context: ApiContext, now: () => number): void {
  const headAtMs = now()
  context.state.headAtMs = headAtMs
  context.set('openai-processing-ms', String(Math.round(headAtMs - context.state.startedAtMs)))
}

/** Whoever knows the id of a kept image may see it: no reader of logs should. */
const CAPABILITY = /^(\/v1\/images\/files\/).*$/s

/**
 * Path without the query: ids and hashes. Whether the caller saw the end tells a cut stream from a whole one, `error` one that ended
 * with an error event. Of an error its code alone: its message may repeat what the caller sent. What is our side's fault, from 500 up,
 * is a warning.
 */
function logRequest(log: Logger, { req, res, state, path }: ApiContext, durationMs: number): void {
  const status = reportedStatusOf(res)
  const line = {
    requestId: state.requestId,
    method: req.method,
    path: path.replace(CAPABILITY, '$1…').slice(0, LOGGED_PATH_LENGTH_MAX),
    status,
    error: state.failure?.code,
    accountId: state.caller?.accountId,
    keyId: state.caller?.keyId,
    durationMs: Math.round(durationMs * 10) / 10,
    isWhole: res.writableFinished,
  }
  if (Math.max(status, state.failure?.status ?? 0) >= 500) log.warn(line, 'request')
  else if (state.isProbe && status < 400) log.debug(line, 'request')
  else log.info(line, 'request')
}
