import type { IncomingMessage, Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { Router } from '@koa/router'
import Koa from 'koa'
import { ApiError } from './errors.ts'
import { createAdmission } from './http/admission.ts'
import { type CallSignals, createCallSignals } from './http/call-signals.ts'
import type { RequestState } from './http/context.ts'
import { createHttpServer } from './http/server.ts'
import type { RateLimiter } from './limits/limiter.ts'
import type { Logger } from './logger.ts'
import { answerErrors } from './middleware/answer-errors.ts'
import { type Authenticator, authenticate } from './middleware/authenticate.ts'
import { compressAnswers } from './middleware/compress.ts'
import { allowOrigins } from './middleware/cors.ts'
import { openRequest } from './middleware/open-request.ts'
import { refuseWhenClosing } from './middleware/refuse-when-closing.ts'
import type { Dispatcher } from './nodes/dispatcher.ts'
import { addChatCompletionRoutes, type ChatRouteOptions } from './routes/chat-completions.ts'
import { addEvidenceRoutes } from './routes/evidence.ts'
import { addHealthRoutes } from './routes/health.ts'
import { addHistoryRoutes } from './routes/history.ts'
import { addKeyRoutes } from './routes/keys.ts'
import { addLogRoutes } from './routes/logs.ts'
import { addModelRoutes } from './routes/models.ts'
import { addNetworkRoutes } from './routes/network.ts'
import { addNodeRoutes } from './routes/nodes.ts'
import { addRateLimitRoutes } from './routes/rate-limits.ts'
import { addServiceRoutes } from './routes/service.ts'
import { addUpstreamRoutes, listUpstreamModels, type UpstreamServices } from './routes/upstream.ts'
import { addVerifiedCompletionRoutes } from './routes/verified-completions.ts'
import type { ApiKeys } from './services/api-keys.ts'
import { createAttestations } from './services/attestations.ts'
import { createChatCompletions } from './services/chat-completions.ts'
import type { Committer } from './services/committer.ts'
import type { EnclaveClient } from './services/enclave-client.ts'
import { createEvidence, type EvidenceSources } from './services/evidence.ts'
import { createHistory } from './services/history.ts'
import type { Idempotency } from './services/idempotency.ts'
import { createLogs, type HeadAttestationsPort } from './services/logs.ts'
import { createManagedKeys } from './services/managed-keys.ts'
import { createModels } from './services/models.ts'
import { createNetworkStats } from './services/network-stats.ts'
import { createOwnedNodes } from './services/nodes.ts'
import { createReadiness, type ReadinessChecks } from './services/readiness.ts'
import { COMMIT_TIMEOUT_MS, createVerifiedCompletions } from './services/verified-completions.ts'
import type { InferencesStore } from './stores/inferences.ts'
import type { LogsStore } from './stores/logs.ts'
import type { NodesStore } from './stores/nodes.ts'
import type { RecordsStore } from './stores/records.ts'

/** What the app is made of; main builds these, and ends them after the app. */
export type AppDependencies = {
  readonly enclave: Pick<EnclaveClient, 'identity' | 'forgetIdentity' | 'complete' | 'attestation'>
  readonly committer: Pick<Committer, 'waitFor' | 'status'>
  readonly records: Pick<RecordsStore, 'list' | 'listFrom' | 'findByHash'>
  readonly logs: LogsStore
  readonly headAttestations: HeadAttestationsPort
  /** How the parts are asked whether they can serve, besides enclave and committer. */
  readonly checks: Pick<ReadinessChecks, 'database' | 'attestation' | 'chain'>
  readonly evidence: EvidenceSources
  readonly keys: Authenticator & Pick<ApiKeys, 'createFor' | 'list' | 'revoke'>
  readonly limiter: Pick<RateLimiter, 'admit' | 'report'>
  readonly idempotency: Idempotency
  readonly nodes: AppNodes
  readonly registry: AppRegistry
  readonly upstream: UpstreamServices
  /** The operator's credentials, by provider name. */
  readonly credentials: ReadonlyMap<string, string>
  readonly settings: AppSettings
  readonly log: Logger
  /** Unix milliseconds; a fraction is welcome. */
  readonly now: () => number
  /** A new id that nobody can guess, letters and digits. */
  readonly makeId: () => string
  /** A new `x-request-id`, at most 128 of [A-Za-z0-9_.:-]. */
  readonly makeRequestId: () => string
}

/** Contributed nodes, whose sockets come in at NODE_SOCKET_PATH. */
export type AppNodes = {
  readonly dispatcher: Pick<Dispatcher, 'dispatch' | 'models'>
  /** Takes the socket of a node that dials in. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  /** Ends a node's connection, if it has one here. */
  disconnect(nodeId: string, reason: string): boolean
  /** Ends all nodes' connections. The app calls it on close(), when no call needs them any more. */
  stop(): Promise<void>
}

/** Where nodes are registered, and what they served. */
export type AppRegistry = {
  readonly nodes: NodesStore
  readonly inferences: Pick<InferencesStore, 'stats' | 'servedDay' | 'network'>
  /** So many unpredictable bytes, for node ids. */
  readonly random: (length: number) => Uint8Array
}

export type AppSettings = {
  /** Whether every account may see everybody's completions. */
  readonly isHistoryOpen: boolean
  readonly keepAliveMs: number
  readonly bodyBytesMax: number
  /** Origins whose scripts may call (middleware/cors.ts). */
  readonly corsOrigins: readonly string[]
  /** Model ids that providers offer, for `GET /v1/models`. */
  readonly providerModels: readonly string[]
  /** How long close() lets running calls go on. */
  readonly shutdownGraceMs: number
  /** One log line per call. */
  readonly logsRequests: boolean
}

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

/** Plain completions at once, and the bytes of their bodies and answers together. Nodes bound them further, by model. */
export const CHAT_CALLS_MAX = 4_096
export const CHAT_BYTES_MAX = 512 * 1024 * 1024

/** Registrations, hardware and benchmarks that are read at once, and the bytes of their bodies together. */
export const REGISTRY_CALLS_MAX = 256
export const REGISTRY_BYTES_MAX = 16 * 1024 * 1024

/** Completion calls at once, and the bytes of their bodies together; beyond that they are refused with 503. */
export const CALLS_MAX = 512
export const BODIES_BYTES_MAX = 512 * 1024 * 1024

/** How long calls that were ended by force have to say so to their callers. */
const FAREWELL_MS = 1_000

/** Builds the API out of its parts. Nothing runs before listen(). */
export function createApp(dependencies: AppDependencies): App {
  const signals = createCallSignals()
  let isClosing = false
  const router = createRouter(dependencies, signals)
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
  const { now, log, makeRequestId, settings } = dependencies
  const koa = new Koa<RequestState>()
  // Everything that is thrown in a call is answered and logged by answerErrors; here come connections that broke.
  koa.on('error', (error: unknown) => log.debug({ err: error }, 'connection failed'))
  koa.use(openRequest({ now, makeRequestId, logsRequests: settings.logsRequests, log }))
  koa.use(allowOrigins(settings.corsOrigins))
  koa.use(compressAnswers())
  koa.use(answerErrors({ now, log }))
  koa.use(refuseWhenClosing(isClosing))
  koa.use(router.routes())
  koa.use(router.allowedMethods())
  return koa
}

function addRoutes(router: Router<RequestState>, dependencies: AppDependencies, signals: CallSignals): void {
  const { enclave, committer, records, logs, headAttestations, credentials, settings, log, now } =
    dependencies
  const { keys, limiter, idempotency } = dependencies
  const authenticated = authenticate(keys, 'inference')
  addServiceRoutes(router, createAttestations({ enclave, now }))
  const fetchDocument = async () => {
    enclave.forgetIdentity()
    return (await enclave.identity()).attestation
  }
  const checks = { ...dependencies.checks, enclave: fetchDocument, commits: () => committer.status() }
  addHealthRoutes(router, createReadiness(checks, now))
  addHistoryRoutes(router, {
    history: createHistory({ records, isOpen: settings.isHistoryOpen }),
    authenticated,
  })
  addEvidenceRoutes(router, {
    evidence: createEvidence({ ...dependencies.evidence, records, isOpen: settings.isHistoryOpen, log }),
    authenticated,
  })
  addLogRoutes(router, {
    logs: createLogs({ logs, headAttestations, records, isOpen: settings.isHistoryOpen }),
    authenticated,
  })
  const { bodyBytesMax, keepAliveMs } = settings
  const calls = { authenticated, limiter, idempotency, signals, bodyBytesMax, keepAliveMs, now, log }
  addVerifiedCompletionRoutes(router, {
    ...calls,
    completions: createVerifiedCompletions({
      enclave,
      committer,
      credentials,
      commitTimeoutMs: COMMIT_TIMEOUT_MS,
      log,
    }),
    admission: createAdmission({ callsMax: CALLS_MAX, bytesMax: BODIES_BYTES_MAX }),
  })
  addNodeServedRoutes(router, dependencies, calls)
  addUpstreamRoutes(router, dependencies.upstream, calls)
  addRegistryRoutes(router, dependencies)
  addAccountRoutes(router, dependencies)
}

/** What holders of keys ask about these, and about their limits: whatever their keys are for. */
function addAccountRoutes(router: Router<RequestState>, { keys, limiter, now }: AppDependencies): void {
  const authenticated = authenticate(keys)
  addRateLimitRoutes(router, { limiter, authenticated })
  addKeyRoutes(router, {
    keys: createManagedKeys({ keys, now }),
    authenticated,
    admission: createAdmission({ callsMax: REGISTRY_CALLS_MAX, bytesMax: REGISTRY_BYTES_MAX }),
  })
}

/** What contributed nodes serve. */
function addNodeServedRoutes(
  router: Router<RequestState>,
  { nodes: { dispatcher }, enclave, upstream, settings, log, now, makeId }: AppDependencies,
  calls: Omit<ChatRouteOptions, 'completions' | 'admission'>,
): void {
  addChatCompletionRoutes(router, {
    ...calls,
    completions: createChatCompletions({ dispatcher, log, now, makeId }),
    admission: createAdmission({ callsMax: CHAT_CALLS_MAX, bytesMax: CHAT_BYTES_MAX }),
  })
  const { providerModels } = settings
  const startedAt = Math.floor(now() / 1000)
  addModelRoutes(
    router,
    createModels({
      dispatcher,
      enclave,
      providerModels,
      upstreamModels: listUpstreamModels(upstream),
      startedAt,
    }),
  )
}

/** What owners of nodes, and their agents, ask. */
function addRegistryRoutes(
  router: Router<RequestState>,
  { registry, nodes: connected, keys, now }: AppDependencies,
): void {
  const authenticated = authenticate(keys, 'nodes')
  const { nodes, inferences, random } = registry
  const onArchived = (nodeId: string) => void connected.disconnect(nodeId, 'Node is archived')
  addNodeRoutes(router, {
    nodes: createOwnedNodes({ nodes, inferences, onArchived, now, random }),
    authenticated,
    admission: createAdmission({ callsMax: REGISTRY_CALLS_MAX, bytesMax: REGISTRY_BYTES_MAX }),
  })
  addNetworkRoutes(router, {
    network: createNetworkStats({ nodes, inferences, now }),
    authenticated: authenticate(keys),
  })
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
