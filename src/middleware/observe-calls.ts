import type { ApiContext, ApiMiddleware } from '../http/context.ts'
import { type CallObserver, type CallReport, openScope, type PhaseReport } from '../telemetry/call-scope.ts'

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
    const ends = observers.map((observer) => observer.begin())
    const { phases, result } = openScope(next)
    context.res.once('close', () => {
      const report = describe(context, phases, now())
      for (const end of ends) end(report)
    })
    return result
  }
}

function describe(context: ApiContext, phases: readonly PhaseReport[], endedAtMs: number): CallReport {
  const { req, res, state } = context
  const { startedAtMs, requestId } = state
  const since = (atMs: number | null) => (atMs === null ? null : atMs - startedAtMs)
  return {
    method: req.method ?? '',
    route: routeOf(context),
    status: res.statusCode,
    isWhole: res.writableFinished,
    requestId,
    startedAtMs,
    durationMs: endedAtMs - startedAtMs,
    headMs: since(state.headAtMs),
    firstEventMs: since(state.firstEventAtMs),
    phases,
  }
}

/** The router leaves the pattern that it found, unless nothing answers this method there. */
function routeOf(context: ApiContext & { readonly _matchedRoute?: unknown }): string | null {
  return typeof context._matchedRoute === 'string' ? context._matchedRoute : null
}
