import type { IncomingMessage, Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Router } from '@koa/router'
import Koa from 'koa'
import { timePorts } from '../observability/time-ports.ts'
import { type AppDependencies, addRoutes } from '../start/app-routes.ts'
import { answerErrors } from './answer-errors.ts'
import { type CallSignals, createCallSignals } from './call-signals.ts'
import { compressAnswers } from './compress.ts'
import type { RequestState } from './context.ts'
import { allowOrigins } from './cors.ts'
import { ApiError } from './errors.ts'
import { observeCalls } from './observe-calls.ts'
import { openRequest } from './open-request.ts'
import { refuseWhenClosing } from './refuse-when-closing.ts'
import { createHttpServer } from './server.ts'

export type { AppDependencies, AppNodes, AppRegistry, AppSettings } from '../start/app-routes.ts'

/** The gateway's HTTP API. */
export type App = {
  readonly server: Server
  /** Every route there is. */
  readonly routes: readonly AppRoute[]
  /** Begins to listen; port 0 takes a free one. Gives where. Throws the system's error when the port is taken. */
  listen(at: { readonly host: string; readonly port: number }): Promise<AddressInfo>
  /**
   * Stops: takes no new calls, lets those under way finish for shutdownGraceMs, then ends them with `shutting_down`, and
   * shortly after cuts their connections. Resolves when none is left. The committer and the enclave must be running until then.
   */
  close(): Promise<void>
}

/** `path` is the router's pattern: `/v1/log/:notary`. A route to GET answers HEAD too. */
export type AppRoute = { readonly method: string; readonly path: string }

/** Where nodes dial in (interface facts: the public client appends `/ws` to `/v1/node`). */
export const NODE_SOCKET_PATH = '/v1/node/ws'

/** How long calls that were ended by force have to say so to their callers. */
const FAREWELL_MS = 1_000

/** Builds the API out of its parts. Nothing runs before listen(). */
export function createApp(dependencies: AppDependencies): App {
  const signals = createCallSignals()
  let isClosing = false
  const router = createRouter(timePorts(dependencies), signals)
  const koa = createKoa(dependencies, { router, isClosing: () => isClosing })
  const { nodes } = dependencies
  const server = createHttpServer(koa.callback(), (request) => !isClosing && isNodeSocket(request))
  server.on('upgrade', (request, socket, head) => nodes.handleUpgrade(request, socket, head))

  function close(): Promise<void> {
    isClosing = true
    const farewell = () => signals.abortAll(new ApiError('shutting_down', 'This instance is shutting down'))
    const { shutdownGraceMs } = dependencies.settings
    // Connections that fall idle after close() are closed only by asking again.
    const sweep = setInterval(() => server.closeIdleConnections(), SWEEP_MS)
    const timers = [
      setTimeout(farewell, shutdownGraceMs),
      setTimeout(() => server.closeAllConnections(), shutdownGraceMs + FAREWELL_MS),
    ]
    const closed = new Promise<void>((resolve) => {
      server.close(() => {
        clearInterval(sweep)
        for (const timer of timers) clearTimeout(timer)
        resolve()
      })
    })
    // The server is not closed before the nodes' connections are, and calls are served over these.
    return signals.idle().then(() => Promise.all([nodes.stop(), closed]).then(() => undefined))
  }

  return { server, routes: listRoutes(router), listen: (at) => listen(server, at), close }
}

const SWEEP_MS = 50

function isNodeSocket({ url, headers }: IncomingMessage): boolean {
  return url?.split('?', 1)[0] === NODE_SOCKET_PATH && headers.upgrade?.toLowerCase() === 'websocket'
}

function createRouter(dependencies: AppDependencies, signals: CallSignals): Router<RequestState> {
  const router = new Router<RequestState>({ sensitive: true })
  addRoutes(router, dependencies, signals)
  return router
}

function listRoutes({ stack }: Router<RequestState>): readonly AppRoute[] {
  return stack.flatMap(({ methods, path }) =>
    methods.filter((method) => method !== 'HEAD').map((method) => ({ method, path: String(path) })),
  )
}

function createKoa(
  dependencies: AppDependencies,
  { router, isClosing }: { readonly router: Router<RequestState>; readonly isClosing: () => boolean },
): Koa<RequestState> {
  const { now, log, makeRequestId, settings, observers } = dependencies
  const koa = new Koa<RequestState>()
  // Everything that is thrown in a call is answered and logged by answerErrors; here come connections that broke.
  koa.on('error', (error: unknown) => log.debug({ err: error }, 'connection failed'))
  koa.use(openRequest({ now, makeRequestId, logsRequests: settings.logsRequests, log }))
  koa.use(observeCalls({ observers, now }))
  koa.use(allowOrigins(settings.corsOrigins))
  koa.use(compressAnswers())
  koa.use(answerErrors({ now, log, paths: listRoutes(router).map(({ path }) => path) }))
  koa.use(refuseWhenClosing(isClosing))
  koa.use(router.routes())
  koa.use(router.allowedMethods())
  return koa
}

function listen(server: Server, { host, port }: { readonly host: string; readonly port: number }) {
  return new Promise<AddressInfo>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => {
      server.off('error', reject)
      resolve(server.address() as AddressInfo)
    })
  })
}
