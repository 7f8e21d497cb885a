import type { Logger } from '../observability/logger.ts'
import { type ApiContext, type ApiMiddleware, JSON_TYPE } from './context.ts'
import { ApiError, CallerLeftError, type ErrorCode, errorReply, ValidationError } from './errors.ts'
import { discardBody } from './read-body.ts'
import { recordFailure, recordProcessingTime } from './track-calls.ts'

/** Shows in a browser that there is nothing at the path that it asked for. */
export type ShowMissingPage = (context: ApiContext) => Promise<unknown>

/**
 * Answers every error that is thrown behind it, and every call that no route answered, in the error
 * envelope. An error that is not ours is logged, and answered with a 500 without details. Where the
 * answer has begun, the connection is cut: half an answer must not look whole. `now` gives
 * milliseconds; `paths` are the router's patterns, for a caller of an unknown path. A browser that
 * asks for a path outside the API's is shown a page.
 */
export function answerErrors(options: {
  readonly now: () => number
  readonly log: Logger
  readonly paths?: readonly string[]
  readonly showMissing?: ShowMissingPage | undefined
}): ApiMiddleware {
  const { now, log, paths = [], showMissing } = options
  return async (context, next) => {
    try {
      await next()
      if (context.status >= 400 && !context.body && context.respond !== false) {
        const error = unanswered(context, paths)
        if (showMissing === undefined || !isForBrowser(context)) throw error
        await showMissing(context)
        recordFailure(context, error, log)
      }
    } catch (error) {
      answer(context, error, log)
    }
    if (!context.req.complete) passOverBody(context)
    if (!context.res.headersSent) recordProcessingTime(context, now)
  }
}

/**
 * A client that was to be asked for its body by `100 Continue` will not send it: the connection
 * cannot be used again.
 */
function passOverBody(context: ApiContext): void {
  if (context.req.headers.expect !== undefined && !context.res.headersSent)
    context.set('connection', 'close')
  discardBody(context.req)
}

function answer(context: ApiContext, error: unknown, log: Logger): void {
  // Neither error has a code to record: the status of a ValidationError is enough, and a caller
  // that left gets no answer.
  const hasCode = !(error instanceof ValidationError || error instanceof CallerLeftError)
  if (hasCode) recordFailure(context, error, log)
  if (error instanceof CallerLeftError || context.res.headersSent) {
    context.respond = false
    context.res.destroy()
    return
  }
  const { status, headers, body } = errorReply(error)
  context.status = status
  context.set(headers)
  if (status === 408) context.set('connection', 'close')
  context.set('content-type', JSON_TYPE)
  context.body = body
}

/** Whether a browser asks for a page that does not exist; the API has no pages. */
function isForBrowser(context: ApiContext): boolean {
  const { status, method, path } = context
  if (status !== 404 || path === '/v1' || path.startsWith('/v1/')) return false
  context.vary('accept')
  return (method === 'GET' || method === 'HEAD') && context.accepts('json', 'html') === 'html'
}

/** The router leaves only a status: 404, 405 or 501. */
function unanswered({ status, response, path }: ApiContext, paths: readonly string[]): ApiError {
  const [code, message] = UNANSWERED[status] ?? (['not_found', absenceText(path, paths)] as const)
  const allowed = response.get('allow')
  // Koa gives undefined for a header that is not set, although its types do not allow that.
  return new ApiError(code, status === 405 && allowed ? `${message}: ${allowed}` : message)
}

/**
 * Says what there is beside a path that is absent: the patterns that have its first two segments or
 * more in common.
 */
function absenceText(path: string, paths: readonly string[]): string {
  const segments = path.split('/', SHARED_MAX + 1)
  for (let shared = segments.length - 1; shared > SHARED_MIN; shared--) {
    const start = `${segments.slice(0, shared).join('/')}/`
    const beside = [...new Set(paths)].filter((pattern) => pattern.startsWith(start))
    if (beside.length > 0)
      return `There is nothing at this path. Similar paths: ${beside.map(shownPath).join(', ')}. See /docs for all paths`
  }
  return OPERATION.test(path) ? BASE_URLS : 'There is nothing at this path'
}

/** What SDKs ask for below their base URL, which lacks `/v1` here, or has it twice. */
const OPERATION =
  /\/(chat\/completions|completions|models|embeddings|images\/\w+|responses|messages)\/?$/

const BASE_URLS =
  'There is nothing at this path: is the base URL right? It ends with /v1 for plain calls (/v1/chat/completions), and with /v1/verified for verified calls (/v1/verified/chat/completions). See /docs for all paths'

/** Below `/v1` alone there is nearly everything. */
const SHARED_MIN = 2
/** No pattern has more segments, and a caller's path may have thousands. */
const SHARED_MAX = 8

/** As the API's description has it: `/v1/models/{model}`. */
function shownPath(pattern: string): string {
  return pattern.replaceAll(/[:*](\w+)/g, '{$1}')
}

const UNANSWERED: Readonly<Record<number, readonly [ErrorCode, string]>> = {
  405: ['method_not_allowed', 'This path has other methods'],
  501: ['not_implemented', 'This method is not implemented'],
}
