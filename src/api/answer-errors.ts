import type { Logger } from '../observability/logger.ts'
import { type ApiContext, type ApiMiddleware, JSON_TYPE } from './context.ts'
import { ApiError, CallerLeftError, type ErrorCode, ValidationError } from './errors.ts'
import { discardBody } from './read-body.ts'
import { recordFailure, recordProcessingTime } from './track-calls.ts'

export type ShowMissingPage = (context: ApiContext) => Promise<unknown>

/**
 * Answers in the error envelope if the next middleware throws, or if the call has no route. An
 * unexpected error is logged, and answered with a 500 without details. If the answer has already
 * begun, the connection is cut, so that the answer does not look complete. A browser that asks for
 * a path outside the API receives a page. `now` returns milliseconds. `paths`: the router's
 * patterns, for the message about an unknown path.
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
 * A client that waits for `100 Continue` sends no body after this answer, so its connection cannot
 * be used again.
 */
function passOverBody(context: ApiContext): void {
  if (context.req.headers.expect !== undefined && !context.res.headersSent)
    context.set('connection', 'close')
  discardBody(context.req)
}

function answer(context: ApiContext, error: unknown, log: Logger): void {
  // A ValidationError has no code to record, and a caller that left gets no answer.
  const hasCode = !(error instanceof ValidationError || error instanceof CallerLeftError)
  if (hasCode) recordFailure(context, error, log)
  if (error instanceof CallerLeftError || context.res.headersSent) {
    context.respond = false
    context.res.destroy()
    return
  }
  const { status, headers, body } = context.state.face.errorReply(error, context.state)
  context.status = status
  // The handler may have described its own answer already.
  context.set('cache-control', 'no-store')
  context.remove('content-disposition')
  context.set(headers)
  if (status === 408) context.set('connection', 'close')
  context.set('content-type', JSON_TYPE)
  context.body = body
}

function isForBrowser(context: ApiContext): boolean {
  const { status, method, path } = context
  if (status !== 404 || path === '/v1' || path.startsWith('/v1/')) return false
  context.vary('accept')
  return (method === 'GET' || method === 'HEAD') && context.accepts('json', 'html') === 'html'
}

/** Without a route, the router sets only a status: 404, 405 or 501. */
function unanswered({ status, response, path }: ApiContext, paths: readonly string[]): ApiError {
  const [code, message] = UNANSWERED[status] ?? (['not_found', absenceText(path, paths)] as const)
  const allowed = response.get('allow')
  // Koa returns undefined for an unset header, although its type does not allow this.
  return new ApiError(code, status === 405 && allowed ? `${message}: ${allowed}` : message)
}

/** Lists the patterns that share their first two or more segments with the unknown path. */
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

/** Paths that SDKs request if the base URL lacks a part, or contains `/v1` twice. */
const OPERATION =
  /\/(chat\/completions|completions|models(\/.+)?|embeddings|images\/\w+|responses|messages(\/count_tokens)?|tool\/search)\/?$/

const BASE_URLS =
  "There is nothing at this path: is the base URL right? For OpenAI's API it ends with /v1 for plain calls (/v1/chat/completions), and with /v1/verified for verified calls (/v1/verified/chat/completions). For Anthropic's API it has no /v1 at its end: it is the address alone for plain calls (/v1/messages), and ends with /v1/verified/anthropic for verified calls (/v1/verified/anthropic/v1/messages). See /docs for all paths"

/** One equal segment is too few: nearly all paths begin with `/v1`. */
const SHARED_MIN = 2
/** A caller's path can have thousands of segments. */
const SHARED_MAX = 8

/** `/v1/models/{model}`, as in the API's description. */
function shownPath(pattern: string): string {
  return pattern.replaceAll(/[:*](\w+)/g, '{$1}')
}

const UNANSWERED: Readonly<Record<number, readonly [ErrorCode, string]>> = {
  405: ['method_not_allowed', 'This path has other methods'],
  501: ['not_implemented', 'This method is not implemented'],
}
