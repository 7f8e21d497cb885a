import type { IncomingMessage, Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { Router } from '@koa/router'
import Koa from 'koa'
import type { CallObserver } from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import { createMemoryBudget, type MemoryBudget } from './admission.ts'
import { answerErrors, type ShowMissingPage } from './answer-errors.ts'
import { type Authenticator, authenticate, recognize } from './authenticate.ts'
import { createCallSignals } from './call-signals.ts'
import { compressAnswers } from './compress.ts'
import type { ApiMiddleware, RequestState } from './context.ts'
import { allowOrigins } from './cors.ts'
import { ApiError } from './errors.ts'
import { LEAST_RATE, type LeastRate } from './least-rate.ts'
import { documentRoute } from './openapi/routes.ts'
import type { Route, RouteServer } from './route.ts'
import { type ApiServer, createHttpServer } from './server.ts'
import { observeCalls, openRequest } from './track-calls.ts'

/** What the app is made of. */
type AppParts = {
  /** Every route but those of their documentation, which the app adds. */
  readonly routes: readonly Route[]
  /** Routes that are for browsers, and in no documentation. */
  readonly pages?: readonly Route[]
  /** Answers a browser that asks for a path that does not exist. */
  readonly showMissing?: ShowMissingPage
  readonly keys: Authenticator
  readonly sockets: AppSockets
  readonly settings: ApiSettings
  /** Each is called for every call. */
  readonly observers: readonly CallObserver[]
  /** Whether it is about to stop: connections are then closed after their answer. */
  readonly isDraining?: () => boolean
  readonly log: Logger
  /** Unix milliseconds; a fraction is welcome. */
  readonly now: () => number
  /** A new `x-request-id`, at most 128 of [A-Za-z0-9_.:-]. */
  readonly makeRequestId: () => string
}

/** Web sockets at one path. */
type AppSockets = {
  readonly path: string
  /** Takes the socket of a client that connects. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  /**
   * Ends all of them. The app calls it on close(), when no call here needs them; calls of other
   * gateways may need them, for `graceMs`.
   */
  stop(graceMs: number): Promise<void>
}

type ApiSettings = {
  /** Pause between the comments of a stream. */
  readonly keepAliveMs: number
  /** Origins whose scripts may call (cors.ts). */
  readonly corsOrigins: readonly string[]
  /** What all calls together may hold, weighed (createMemoryBudget). */
  readonly memoryBytesMax: number
  /** Slowest that bodies may arrive. Default LEAST_RATE. */
  readonly bodyRate?: LeastRate
  /** How long close() lets running calls go on. */
  readonly shutdownGraceMs: number
  /** One log line per call. */
  readonly logsRequests: boolean
  /** Addresses and CIDRs of proxies whose `x-forwarded-for` is believed. */
  readonly trustedProxies: readonly string[]
  /** Headers of every answer, also of the answers to malformed requests. */
  readonly headers?: Readonly<Record<string, string>>
}

/** The gateway's HTTP API. */
export type App = {
  readonly server: ApiServer
  /** Every route there is. */
  readonly routes: readonly Pick<Route, 'method' | 'path' | 'scope' | 'tag'>[]
  /** What all calls hold, and may hold. */
  readonly memory: MemoryBudget['load']
  /**
   * Begins to listen; port 0 takes a free one. Gives where. Throws the system's error when the port
   * is taken.
   */
  listen(at: { readonly host: string; readonly port: number }): Promise<AddressInfo>
  /**
   * Stops: takes no new calls, lets those under way finish for shutdownGraceMs, then ends them with
   * `shutting_down`, and shortly after cuts their connections. Resolves when none is left. The
   * committer and the enclave must be running until then.
   */
  close(): Promise<void>
}

/** How long calls that were ended by force have to say so to their callers. */
const FAREWELL_MS = 1_000

/** Builds the API out of its parts. Nothing runs before listen(). */
export function createApp(parts: AppParts): App {
  const { sockets, settings, now, log } = parts
  const routes = [...parts.routes, ...(parts.pages ?? []), documentRoute(parts.routes)]
  const signals = createCallSignals()
  let isClosing = false
  const memory = createMemoryBudget(settings.memoryBytesMax)
  const { bodyRate: rate = LEAST_RATE } = settings
  const serving = { signals, memory, rate, keepAliveMs: settings.keepAliveMs, now, log }
  const router = createRouter(routes, parts.keys, serving)
  const koa = createKoa(parts, {
    router,
    paths: routes.map(({ path }) => path),
    isClosing: () => isClosing,
  })
  const isUpgrade = (request: IncomingMessage) => !isClosing && asksForSocket(request, sockets.path)
  const server = createHttpServer(koa.callback(), {
    isUpgrade,
    ...(settings.headers ? { headers: settings.headers } : {}),
  })
  server.on('upgrade', (request, socket, head) => sockets.handleUpgrade(request, socket, head))

  function close(): Promise<void> {
    isClosing = true
    const farewell = () =>
      signals.abortAll(new ApiError('shutting_down', 'This instance is shutting down'))
    const { shutdownGraceMs } = settings
    const endsAtMs = performance.now() + shutdownGraceMs
    const stopSockets = () => sockets.stop(Math.max(0, endsAtMs - performance.now()))
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
    // The server is not closed before the sockets are, and calls are served over these.
    return signals.idle().then(() => Promise.all([stopSockets(), closed]).then(() => undefined))
  }

  return { server, routes, memory: memory.load, listen: (at) => listen(server, at), close }
}

const SWEEP_MS = 50

function asksForSocket({ url, headers }: IncomingMessage, path: string): boolean {
  return url?.split('?', 1)[0] === path && headers.upgrade?.toLowerCase() === 'websocket'
}

function createRouter(
  routes: readonly Route[],
  keys: Authenticator,
  serving: RouteServer,
): Router<RequestState> {
  const router = new Router<RequestState>({ sensitive: true })
  // The order is that of the methods in `allow`.
  for (const route of routes.toSorted((one, other) => (one.method < other.method ? -1 : 1))) {
    const { method, path } = route
    const guards = guardsOf(route, keys)
    router.register(path, [method], [...guards, (context) => route.serve(context, serving)])
  }
  return router
}

/** What a call of a route passes before it is served. */
function guardsOf(
  { scope, knowsKeys }: Pick<Route, 'scope' | 'knowsKeys'>,
  keys: Authenticator,
): readonly ApiMiddleware[] {
  if (scope !== 'public') return [authenticate(keys, scope === 'any' ? null : scope)]
  return knowsKeys ? [recognize(keys)] : []
}

function createKoa(
  { now, log, makeRequestId, settings, observers, showMissing, isDraining = () => false }: AppParts,
  {
    router,
    paths,
    isClosing,
  }: {
    readonly router: Router<RequestState>
    readonly paths: readonly string[]
    readonly isClosing: () => boolean
  },
): Koa<RequestState> {
  const koa = new Koa<RequestState>()
  // Everything that is thrown in a call is answered and logged by answerErrors; here come
  // connections that broke.
  koa.on('error', (error: unknown) => log.debug({ err: error }, 'connection failed'))
  const { logsRequests, trustedProxies } = settings
  koa.use(openRequest({ now, makeRequestId, logsRequests, trustedProxies, log }))
  koa.use(observeCalls({ observers, logsRequests, now }))
  koa.use(allowOrigins(settings.corsOrigins))
  koa.use(compressAnswers())
  koa.use(answerErrors({ now, log, paths, showMissing }))
  koa.use(closeConnections(isDraining))
  koa.use(refuseWhenClosing(isClosing))
  koa.use(router.routes())
  koa.use(router.allowedMethods())
  return koa
}

/** Makes clients that keep connections open the next one elsewhere, before the port closes. */
function closeConnections(isDraining: () => boolean): ApiMiddleware {
  return (context, next) => {
    if (isDraining()) context.set('connection', 'close')
    return next()
  }
}

/**
 * Refuses calls that come over open connections while the process stops, and has those connections
 * closed.
 */
function refuseWhenClosing(isClosing: () => boolean): ApiMiddleware {
  return (context, next) => {
    if (!isClosing()) return next()
    context.set('connection', 'close')
    throw new ApiError('shutting_down', 'This instance is shutting down, try again')
  }
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
