import type { IncomingMessage, Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { Router } from '@koa/router'
import Koa from 'koa'
import { type CallObserver, timed } from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import { unixMs } from '../runtime/clock.ts'
import { makeId } from '../runtime/make-id.ts'
import { createMemoryBudget, type MemoryBudget } from './admission.ts'
import { answerErrors, type ShowMissingPage } from './answer-errors.ts'
import { type Authenticator, authenticate, recognize } from './authenticate.ts'
import { createCallSignals } from './call-signals.ts'
import { compressAnswers } from './compress.ts'
import type { ApiMiddleware, RequestState } from './context.ts'
import { allowOrigins } from './cors.ts'
import { ApiError } from './errors.ts'
import { createFaces } from './faces.ts'
import { LEAST_RATE, type LeastRate } from './least-rate.ts'
import { documentRoute } from './openapi/routes.ts'
import type { Route, RouteServer } from './route.ts'
import { type ApiServer, createHttpServer } from './server.ts'
import { observeCalls, openRequest } from './track-calls.ts'

type AppParts = {
  /** Without the routes of the documentation, which the app adds. */
  readonly routes: readonly Route[]
  readonly pages: {
    /** Routes for browsers, not in the documentation. */
    readonly routes: readonly Route[]
    readonly showMissing: ShowMissingPage
  }
  readonly keys: Authenticator
  readonly sockets: AppSockets
  /** Default LEAST_RATE. */
  readonly bodyRate?: LeastRate | undefined
  /** Default STALL_TIMEOUT_MS. */
  readonly stallTimeoutMs?: number
  readonly observers: readonly CallObserver[]
  /** True if the gateway will stop soon. Connections are then closed after each answer. */
  readonly isDraining: () => boolean
  readonly log: Logger
}

/** The WebSockets at one path. */
export type AppSockets = {
  readonly path: string
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  /**
   * Ends all sockets. close() runs this after the last call of this gateway. Waits at most
   * `graceMs` for other gateways' calls over these sockets.
   */
  stop(graceMs: number): Promise<void>
}

type ApiSettings = {
  /** Between the keep-alive comments of a stream. */
  readonly keepAliveMs: number
  /** Origins whose scripts may call the API (cors.ts). */
  readonly corsOrigins: readonly string[]
  /** Maximum memory of all calls together, bytes (createMemoryBudget). */
  readonly memoryBytesMax: number
  /** close() waits this long for running calls. */
  readonly shutdownGraceMs: number
  /** At `info` and `debug`, each call has one log line. */
  readonly logLevel: string
  /** Addresses and CIDRs of the proxies whose `x-forwarded-for` is trusted. */
  readonly trustedProxies: readonly string[]
  /** If true, each answer has STAGING_HEADERS, even the answer to a malformed request. */
  readonly isStaging: boolean
}

const STAGING_HEADERS = { 'affidavit-staging': 'true' }

export type App = {
  readonly server: ApiServer
  readonly routes: readonly Route[]
  readonly memory: MemoryBudget['load']
  /** Port 0 selects a free port. Throws the system's error if the port is taken. */
  listen(at: { readonly host: string; readonly port: number }): Promise<AddressInfo>
  /**
   * Accepts no new calls, and waits shutdownGraceMs for the running calls. Then ends them with
   * `shutting_down`, and soon cuts their connections. Resolves when no call is left. The committer
   * and the enclave must run until then.
   */
  close(): Promise<void>
}

/** A call that is ended by force has this time to send its error. */
const FAREWELL_MS = 1_000

/** Nothing runs before listen(). */
export function openApp(settings: ApiSettings, parts: AppParts): App {
  const { sockets, bodyRate: rate = LEAST_RATE, log } = parts
  const now = unixMs
  const keys = { authenticate: timed({ phase: 'authenticate', now }, parts.keys.authenticate) }
  const open = parts.routes.filter(({ scope }) => scope !== 'operator')
  const routes = [...open, ...parts.pages.routes, documentRoute(open)]
  const signals = createCallSignals()
  let isClosing = false
  const memory = createMemoryBudget(settings.memoryBytesMax)
  const serving = { signals, memory, rate, keepAliveMs: settings.keepAliveMs, now, log }
  const router = createRouter(routes, (route) => guardsOf(route, keys), serving)
  const koa = createKoa(settings, parts, {
    router,
    routes,
    isClosing: () => isClosing,
  })
  const isUpgrade = (request: IncomingMessage) => !isClosing && asksForSocket(request, sockets.path)
  const server = createHttpServer(koa.callback(), {
    isUpgrade,
    ...(parts.stallTimeoutMs === undefined ? {} : { stallTimeoutMs: parts.stallTimeoutMs }),
    headers: settings.isStaging ? STAGING_HEADERS : {},
  })
  server.on('upgrade', (request, socket, head) => sockets.handleUpgrade(request, socket, head))

  async function close(): Promise<void> {
    isClosing = true
    const farewell = () =>
      signals.abortAll(new ApiError('shutting_down', 'This instance is shutting down'))
    const { shutdownGraceMs } = settings
    const endsAtMs = performance.now() + shutdownGraceMs
    const stopSockets = () => sockets.stop(Math.max(0, endsAtMs - performance.now()))
    // A connection that becomes idle after close() stays open until closeIdleConnections().
    const sweep = setInterval(() => server.closeIdleConnections(), SWEEP_MS)
    const timers = [
      setTimeout(farewell, shutdownGraceMs),
      setTimeout(() => server.closeAllConnections(), shutdownGraceMs + FAREWELL_MS),
    ]
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    try {
      // Running calls may need the sockets. The server closes only after its sockets are closed.
      await signals.idle()
      await Promise.all([stopSockets(), closed])
    } finally {
      // Not when the server is closed, because a call may still run after its caller left.
      clearInterval(sweep)
      for (const timer of timers) clearTimeout(timer)
    }
  }

  return { server, routes, memory: memory.load, listen: (at) => listen(server, at), close }
}

const SWEEP_MS = 50

function asksForSocket({ url, headers }: IncomingMessage, path: string): boolean {
  return url?.split('?', 1)[0] === path && headers.upgrade?.toLowerCase() === 'websocket'
}

/** `guardsOf` returns the middleware that runs first for a route. */
export function createRouter(
  routes: readonly Route[],
  guardsOf: (route: Route) => readonly ApiMiddleware[],
  serving: RouteServer,
): Router<RequestState> {
  const router = new Router<RequestState>({ sensitive: true })
  // Sorted, because `allow` lists the methods in the order of registration.
  for (const route of routes.toSorted((one, other) => (one.method < other.method ? -1 : 1))) {
    const { method, path } = route
    router.register(
      path,
      [method],
      [...guardsOf(route), (context) => route.serve(context, serving)],
    )
  }
  return router
}

/** Guards of the public port. */
function guardsOf({ scope, knowsKeys }: Route, keys: Authenticator): readonly ApiMiddleware[] {
  if (scope === 'operator') throw new TypeError('expected a route of the public port')
  if (scope !== 'public') return [authenticate(keys, scope === 'any' ? null : scope)]
  return knowsKeys ? [recognize(keys)] : []
}

function createKoa(
  { logLevel, trustedProxies, corsOrigins }: ApiSettings,
  { log, observers, pages, isDraining }: AppParts,
  {
    router,
    routes,
    isClosing,
  }: {
    readonly router: Router<RequestState>
    readonly routes: readonly Route[]
    readonly isClosing: () => boolean
  },
): Koa<RequestState> {
  const koa = new Koa<RequestState>()
  // answerErrors handles every error of a call. Only faults of broken connections arrive here.
  koa.on('error', (error: unknown) => log.debug({ err: error }, 'connection failed'))
  const now = unixMs
  const makeRequestId = () => `req_${makeId()}`
  const faceOf = createFaces(routes)
  const paths = routes.map(({ path }) => path)
  const logsRequests = logLevel === 'info' || logLevel === 'debug'
  koa.use(openRequest({ now, makeRequestId, logsRequests, trustedProxies, faceOf, log }))
  koa.use(observeCalls({ observers, logsRequests, now }))
  koa.use(allowOrigins(corsOrigins))
  koa.use(compressAnswers())
  koa.use(answerErrors({ now, log, paths, showMissing: pages.showMissing }))
  koa.use(closeConnections(isDraining))
  koa.use(refuseWhenClosing(isClosing))
  koa.use(refuseWebSockets)
  koa.use(router.routes())
  koa.use(router.allowedMethods())
  return koa
}

/** Closes each connection after its answer while `isDraining` returns true. */
function closeConnections(isDraining: () => boolean): ApiMiddleware {
  return (context, next) => {
    if (isDraining()) context.set('connection', 'close')
    return next()
  }
}

/** Refuses calls while the process stops, and closes their connections. */
function refuseWhenClosing(isClosing: () => boolean): ApiMiddleware {
  return (context, next) => {
    if (!isClosing()) return next()
    context.set('connection', 'close')
    throw new ApiError('shutting_down', 'This instance is shutting down, try again')
  }
}

/** Agents ask for a WebSocket before they have a key. Upon this answer they use POST. */
const refuseWebSockets: ApiMiddleware = (context, next) => {
  const { upgrade } = context.req.headers
  if (!context.state.face.refusesWebSockets || upgrade?.toLowerCase() !== 'websocket') return next()
  context.set('upgrade', 'HTTP/1.1')
  throw new ApiError('websocket_not_served', 'This path has no WebSocket: send a POST')
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
