import { ApiError, CallerLeftError, type ErrorCode, errorReply, ValidationError } from '../errors.ts'
import { type ApiContext, type ApiMiddleware, JSON_TYPE } from '../http/context.ts'
import { discardBody } from '../http/read-body.ts'
import type { Logger } from '../logger.ts'
import { noteFailure } from './note-failure.ts'
import { noteProcessingTime } from './open-request.ts'

/**
 * Answers whatever is thrown behind it, and whatever no route answered, in the error envelope. What is not ours is
 * logged and answered with a 500 that says nothing. Where the answer has begun, the connection is cut: half an answer
 * must not look whole. `now` gives milliseconds.
 */
export function answerErrors(options: { readonly now: () => number; readonly log: Logger }): ApiMiddleware {
  const { now, log } = options
  return async (context, next) => {
    try {
      await next()
      if (context.status >= 400 && !context.body && context.respond !== false) throw unanswered(context)
    } catch (error) {
      answer(context, error, log)
    }
    if (!context.req.complete) passOverBody(context)
    if (!context.res.headersSent) noteProcessingTime(context, now)
  }
}

/** A client that was to be asked for its body by `100 Continue` will not send it: the connection cannot be used again. */
function passOverBody(context: ApiContext): void {
  if (context.req.headers.expect !== undefined && !context.res.headersSent) context.set('connection', 'close')
  discardBody(context.req)
}

function answer(context: ApiContext, error: unknown, log: Logger): void {
  // Neither has a code: of the one the status says all, of the other nobody is told.
  const hasCode = !(error instanceof ValidationError || error instanceof CallerLeftError)
  if (hasCode) noteFailure(context, error, log)
  if (error instanceof CallerLeftError || context.res.headersSent) {
    context.respond = false
    context.res.destroy()
    return
  }
  const { status, headers, body } = errorReply(error)
  context.status = status
  context.set(headers)
  context.set('content-type', JSON_TYPE)
  context.body = body
}

/** The router leaves only a status: 404, 405 or 501. */
function unanswered({ status, response }: ApiContext): ApiError {
  const [code, message] = UNANSWERED[status] ?? (['not_found', 'There is nothing at this path'] as const)
  const allowed = response.get('allow')
  // Koa gives undefined for a header that is not set, whatever its types say.
  return new ApiError(code, status === 405 && allowed ? `${message}: ${allowed}` : message)
}

const UNANSWERED: Readonly<Record<number, readonly [ErrorCode, string]>> = {
  405: ['method_not_allowed', 'This path has other methods'],
  501: ['not_implemented', 'This method is not implemented'],
}
