import { type CallObserver, type CallReport, type CallScope, openScope } from '../observability/call-scope.ts'
import type { ApiContext, ApiMiddleware } from './context.ts'
import { reportedStatusOf } from './reported-status.ts'

/** Tells `observers` of every call. Right behind openRequest, so that it sees all of it. `now` gives milliseconds. */
export function observeCalls({
  observers,
  now,
}: {
  readonly observers: readonly CallObserver[]
  readonly now: () => number
}): ApiMiddleware {
  if (observers.length === 0) return (_, next) => next()
  return (context, next) => {
    const { startedAtMs } = context.state
    const call = { startedAtMs, traceparent: headerOf(context) }
    const watches = observers.map((observer) => observer.begin(call))
    const traceparent = watches.find((watch) => watch.traceparent !== null)?.traceparent ?? null
    const { scope, result } = openScope(traceparent, next)
    context.res.once('close', () => {
      const report = describe(context, scope, now())
      for (const watch of watches) watch.end(report)
    })
    return result
  }
}

function headerOf({ req }: ApiContext): string | null {
  const { traceparent } = req.headers
  return typeof traceparent === 'string' ? traceparent : null
}

function describe(context: ApiContext, { phases, inference }: CallScope, endedAtMs: number): CallReport {
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
