import type { Router } from '@koa/router'
import { type RequestState, type RouteHandler, sendJson } from './context.ts'
import { ApiError, errorReply } from './errors.ts'
import type { Readiness, ReadinessReport } from './readiness.ts'

/**
 * Routes for whoever keeps this process running; they need no key and name parts, nothing of them. `GET /healthz`: the process
 * answers, 200. A restart helps when it does not. `GET /readyz`: 200 when verified completions can be served, else 503 with the failing parts.
 */
export function addHealthRoutes(router: Router<RequestState>, readiness: Readiness): void {
  const healthy: RouteHandler = async (context) => {
    context.state.isProbe = true
    sendJson(context, JSON.stringify({ status: 'ok' }))
  }

  const ready: RouteHandler = async (context) => {
    context.state.isProbe = true
    const report = await readiness.read()
    if (report.failing.length === 0) {
      sendJson(context, JSON.stringify({ status: 'ready', ...describe(report) }))
      return
    }
    const error = new ApiError('not_ready', `Not ready: ${report.failing.join(', ')}`)
    const { status, headers, body } = errorReply(error)
    sendJson(context, JSON.stringify({ ...JSON.parse(body), status: 'failing', ...describe(report) }))
    context.status = status
    context.set(headers)
    context.state.failure = error
  }

  router.get('/healthz', healthy)
  router.get('/readyz', ready)
}

function describe({ failing, chain, commitFault }: ReadinessReport): object {
  return {
    failing,
    ...(commitFault === null ? {} : { reasons: { commits: commitFault } }),
    chain: { status: chain.isFailing ? 'failing' : 'ok', anchors_waiting: chain.anchorsWaiting },
  }
}
