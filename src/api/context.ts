import type { RouterContext } from '@koa/router'
import type { Next, ParameterizedContext } from 'koa'
import type { Caller } from './authenticate.ts'
import type { ErrorCode } from './errors.ts'

/** The error that a caller was told: its code, and its status, which a stream that has begun can only tell in its error event. */
export type CallFailure = { readonly code: ErrorCode; readonly status: number }

/** What middleware leaves for what stands behind it. */
export type RequestState = {
  /** `x-request-id` of this call: the caller's if it is well-formed, else ours. */
  requestId: string
  /** When the call came in, milliseconds of the app's clock. */
  startedAtMs: number
  /** Null before, and without, `authenticate`. */
  caller: Caller | null
  /** When the answer's head, and a stream's first event, went out; null before. */
  headAtMs: number | null
  firstEventAtMs: number | null
  /** What the caller was told in place of an answer, or of the rest of a stream; null while there is nothing. */
  failure: CallFailure | null
  /** Asked by machines all day: logged at debug level when it went well. */
  isProbe: boolean
}

export type ApiContext = ParameterizedContext<RequestState, object>
export type ApiMiddleware = (context: ApiContext, next: Next) => Promise<void>

export type RouteContext = RouterContext<RequestState>
export type RouteHandler = (context: RouteContext) => Promise<void>

/** Answers 200 with JSON `text` as it is. */
export function sendJson(context: ApiContext, text: string): void {
  context.status = 200
  context.set('content-type', JSON_TYPE)
  context.body = text
}

/** Content type of every answer that is no stream. */
export const JSON_TYPE = 'application/json; charset=utf-8'
