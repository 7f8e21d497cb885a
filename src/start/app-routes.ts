import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Router } from '@koa/router'
import type { ApiKeys } from '../accounts/api-keys.ts'
import type { Idempotency } from '../accounts/idempotency.ts'
import { addKeyRoutes } from '../accounts/key-routes.ts'
import type { RateLimiter } from '../accounts/limits/limiter.ts'
import { createManagedKeys } from '../accounts/managed-keys.ts'
import { addRateLimitRoutes } from '../accounts/rate-limit-routes.ts'
import { createAdmission } from '../api/admission.ts'
import { type Authenticator, authenticate } from '../api/authenticate.ts'
import type { CallSignals } from '../api/call-signals.ts'
import type { RequestState } from '../api/context.ts'
import { addHealthRoutes } from '../api/health-routes.ts'
import { createReadiness, type ReadinessChecks } from '../api/readiness.ts'
import { addReferenceRoutes } from '../api/reference-routes.ts'
import { createChatCompletions } from '../chat/chat-completions.ts'
import { createModelOutcomes, type ModelOutcomes, noteOutcomes } from '../chat/model-outcomes.ts'
import { addModelRoutes } from '../chat/model-routes.ts'
import { createModels } from '../chat/models.ts'
import { addChatCompletionRoutes, type ChatRouteOptions } from '../chat/routes.ts'
import { addServiceRoutes } from '../enclaves/attestation-routes.ts'
import { createAttestations } from '../enclaves/attestations.ts'
import type { Enclaves } from '../enclaves/enclaves.ts'
import type { Dispatcher } from '../nodes/dispatcher.ts'
import type { InferencesStore } from '../nodes/inferences-store.ts'
import { addNetworkRoutes } from '../nodes/network-routes.ts'
import { createNetworkStats } from '../nodes/network-stats.ts'
import type { NodesStore } from '../nodes/nodes-store.ts'
import { createOwnedNodes } from '../nodes/owned-nodes.ts'
import { addNodeRoutes } from '../nodes/registry-routes.ts'
import type { CallObserver } from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import type { BootStatementsStore } from '../verified/boot-statements-store.ts'
import type { Committer } from '../verified/committer.ts'
import { addVerifiedCompletionRoutes } from '../verified/completion-routes.ts'
import { createEvidence, type EvidenceSources } from '../verified/evidence.ts'
import { addEvidenceRoutes } from '../verified/evidence-routes.ts'
import type { HeadPageSources } from '../verified/head-page.ts'
import { createHistory } from '../verified/history.ts'
import { addHistoryRoutes } from '../verified/history-routes.ts'
import { addLogRoutes } from '../verified/log-routes.ts'
import { createLogs } from '../verified/logs.ts'
import type { LogsStore } from '../verified/logs-store.ts'
import type { RecordsStore } from '../verified/records-store.ts'
import { COMMIT_TIMEOUT_MS, createVerifiedCompletions } from '../verified/verified-completions.ts'
import { addUpstreamRoutes, listUpstreamModels, type UpstreamServices } from './upstream-routes.ts'

/** What the app is made of; main builds these, and ends them after the app. */
export type AppDependencies = {
  readonly enclaves: Pick<Enclaves, 'complete' | 'attesting' | 'document' | 'notaries' | 'identities'>
  readonly committer: Pick<Committer, 'waitFor' | 'status'>
  readonly records: Pick<RecordsStore, 'list' | 'listFrom' | 'findByHash'>
  readonly logs: LogsStore
  readonly headAttestations: HeadPageSources['headAttestations']
  readonly bootStatements: Pick<BootStatementsStore, 'find'>
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
  /** Are told of every call. */
  readonly observers: readonly CallObserver[]
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

/** Plain completions at once, and the bytes of their bodies and answers together. Nodes bound them further, by model. */
export const CHAT_CALLS_MAX = 4_096
export const CHAT_BYTES_MAX = 512 * 1024 * 1024

/** Registrations, hardware and benchmarks that are read at once, and the bytes of their bodies together. */
export const REGISTRY_CALLS_MAX = 256
export const REGISTRY_BYTES_MAX = 16 * 1024 * 1024

/** Completion calls at once, and the bytes of their bodies together; beyond that they are refused with 503. */
export const CALLS_MAX = 512
export const BODIES_BYTES_MAX = 512 * 1024 * 1024

/** Adds every route, each over the services that it calls. */
export function addRoutes(
  router: Router<RequestState>,
  dependencies: AppDependencies,
  signals: CallSignals,
): void {
  const { enclaves, committer, records, credentials, settings, log, now } = dependencies
  const { keys, limiter, idempotency } = dependencies
  const authenticated = authenticate(keys, 'inference')
  addServiceRoutes(router, createAttestations({ enclaves, now: () => performance.now() }))
  addReferenceRoutes(router)
  const checks = {
    ...dependencies.checks,
    enclave: () => enclaves.document(),
    commits: () => committer.status(),
  }
  addHealthRoutes(
    router,
    createReadiness(checks, () => performance.now()),
  )
  addHistoryRoutes(router, {
    history: createHistory({ records, isOpen: settings.isHistoryOpen }),
    authenticated,
  })
  addEvidenceRoutes(router, {
    evidence: createEvidence({ ...dependencies.evidence, records, isOpen: settings.isHistoryOpen, log }),
    authenticated,
  })
  addLogRoutes(router, {
    logs: createLogs({ ...dependencies, isOpen: settings.isHistoryOpen }),
    authenticated,
  })
  const { bodyBytesMax, keepAliveMs } = settings
  const calls = { authenticated, limiter, idempotency, signals, bodyBytesMax, keepAliveMs, now, log }
  const outcomes = createModelOutcomes(dependencies.now)
  const completions = createVerifiedCompletions({
    enclaves,
    committer,
    credentials,
    commitTimeoutMs: COMMIT_TIMEOUT_MS,
    log,
  })
  addVerifiedCompletionRoutes(router, {
    ...calls,
    completions: noteOutcomes(completions, outcomes),
    admission: createAdmission({ callsMax: CALLS_MAX, bytesMax: BODIES_BYTES_MAX }),
  })
  addNodeServedRoutes(router, dependencies, calls)
  addModels(router, dependencies, outcomes)
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
  { nodes: { dispatcher }, log, now, makeId }: AppDependencies,
  calls: Omit<ChatRouteOptions, 'completions' | 'admission'>,
): void {
  addChatCompletionRoutes(router, {
    ...calls,
    completions: createChatCompletions({ dispatcher, log, now, makeId }),
    admission: createAdmission({ callsMax: CHAT_CALLS_MAX, bytesMax: CHAT_BYTES_MAX }),
  })
}

/** What can be asked for. */
function addModels(
  router: Router<RequestState>,
  { nodes: { dispatcher }, enclaves, upstream, credentials, settings, now }: AppDependencies,
  outcomes: ModelOutcomes,
): void {
  const models = createModels({
    ...{ dispatcher, enclaves, credentials, outcomes },
    providerModels: settings.providerModels,
    listUpstream: () => listUpstreamModels(upstream),
    startedAt: Math.floor(now() / 1000),
  })
  addModelRoutes(router, models)
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
