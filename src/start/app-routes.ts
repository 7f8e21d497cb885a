import type { ApiKeys } from '../accounts/api-keys.ts'
import type { Idempotency } from '../accounts/idempotency.ts'
import { keyRoutes } from '../accounts/key-routes.ts'
import type { RateLimiter } from '../accounts/limits/limiter.ts'
import { createManagedKeys } from '../accounts/managed-keys.ts'
import { rateLimitRoutes } from '../accounts/rate-limit-routes.ts'
import { type ApiSettings, type App, type AppSockets, createApp } from '../api/app.ts'
import type { Authenticator } from '../api/authenticate.ts'
import { rootRoute } from '../api/openapi/routes.ts'
import type { Route } from '../api/route.ts'
import { createChatCompletions } from '../chat/chat-completions.ts'
import { createModels, modelRoutes, type UpstreamModel } from '../chat/models.ts'
import { chatRoutes } from '../chat/routes.ts'
import type { Embeddings } from '../embeddings/embeddings.ts'
import { embeddingRoutes } from '../embeddings/routes.ts'
import { attestationRoutes } from '../enclaves/attestation-routes.ts'
import { createAttestations } from '../enclaves/attestations.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import type { Images } from '../images/images.ts'
import { imageRoutes } from '../images/routes.ts'
import type { Dispatcher } from '../nodes/dispatch.ts'
import type { InferencesStore } from '../nodes/inferences-store.ts'
import { createNetworkStats } from '../nodes/network-stats.ts'
import { NODE_SOCKET_PATH } from '../nodes/node-socket.ts'
import type { NodesStore } from '../nodes/nodes-store.ts'
import { createOwnedNodes } from '../nodes/owned-nodes.ts'
import { nodeRoutes } from '../nodes/registry-routes.ts'
import type { CallObserver } from '../observability/call-scope.ts'
import type { Logger } from '../observability/logger.ts'
import { timePorts } from '../observability/time-ports.ts'
import { searchRoutes } from '../search/routes.ts'
import type { WebSearch } from '../search/web-search.ts'
import type { BootStatementsStore } from '../verified/boot-statements-store.ts'
import type { Committer } from '../verified/committer.ts'
import { verifiedCompletionRoutes } from '../verified/completion-routes.ts'
import { createEvidence, type EvidenceSources } from '../verified/evidence.ts'
import { createReadiness, healthRoutes, type ReadinessChecks } from '../verified/health.ts'
import { createHistory } from '../verified/history.ts'
import { historyRoutes } from '../verified/history-routes.ts'
import { logRoutes } from '../verified/log-routes.ts'
import { createLogs, type HeadPageSources } from '../verified/logs.ts'
import type { LogsStore } from '../verified/logs-store.ts'
import {
  createModelOutcomes,
  createVerifiedModels,
  noteOutcomes,
  verifiedModelRoutes,
} from '../verified/models.ts'
import type { RecordsStore } from '../verified/records-store.ts'
import { COMMIT_TIMEOUT_MS, createVerifiedCompletions } from '../verified/verified-completions.ts'

/** What the app is made of; main builds these, and ends them after the app. */
export type AppDependencies = {
  readonly enclaves: Pick<EnclavePool, 'complete' | 'find' | 'document' | 'notaries' | 'identities'>
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
export type AppNodes = Omit<AppSockets, 'path'> & {
  readonly dispatcher: Pick<Dispatcher, 'dispatch' | 'models'>
  /** Ends a node's connection, if it has one here. */
  disconnect(nodeId: string, reason: string): boolean
}

/** Where nodes are registered, and what they served. */
export type AppRegistry = {
  readonly nodes: NodesStore
  readonly inferences: Pick<InferencesStore, 'stats' | 'servedDay' | 'network'>
  /** So many unpredictable bytes, for node ids. */
  readonly random: (length: number) => Uint8Array
}

export type AppSettings = ApiSettings & {
  /** Whether every account may see everybody's completions. */
  readonly isHistoryOpen: boolean
  readonly bodyBytesMax: number
  /** Model ids that providers offer, for `GET /v1/models`. */
  readonly providerModels: readonly string[]
}

/** What is served by services that the operator configured, rather than by nodes or through the enclave. */
export type UpstreamServices = {
  readonly embeddings: Embeddings
  readonly search: WebSearch
  readonly images: Images
  /** Origin under which callers reach this service; null: the one that each called. */
  readonly publicOrigin: string | null
}

/** The API over these parts, whose work for a call is timed. */
export function createGatewayApp(dependencies: AppDependencies): App {
  const timed = timePorts(dependencies)
  const { keys, nodes, settings, observers, log, now, makeRequestId } = timed
  return createApp({
    routes: listRoutes(timed),
    keys,
    sockets: { ...nodes, path: NODE_SOCKET_PATH },
    ...{ settings, observers, log, now, makeRequestId },
  })
}

/** Every route, each over the services that it calls, in the order in which the documentation has them. */
export function listRoutes(dependencies: AppDependencies): readonly Route[] {
  const { enclaves, committer, records, credentials, settings, log, now, makeId } = dependencies
  const { keys, limiter, idempotency, registry, nodes, upstream } = dependencies
  const { isHistoryOpen: isOpen, bodyBytesMax } = settings
  const outcomes = createModelOutcomes(now)
  const verified = { enclaves, committer, credentials, commitTimeoutMs: COMMIT_TIMEOUT_MS, log }
  const offered = { enclaves, providerModels: settings.providerModels, startedAt: Math.floor(now() / 1000) }
  const models = createModels({
    ...offered,
    dispatcher: nodes.dispatcher,
    listUpstream: () => listUpstreamModels(upstream),
  })
  const checks = {
    ...dependencies.checks,
    enclave: () => enclaves.document(),
    commits: () => committer.status(),
  }
  const owned = {
    ...{ nodes: registry.nodes, inferences: registry.inferences, random: registry.random, now },
    onArchived: (nodeId: string) => void nodes.disconnect(nodeId, 'Node is archived'),
  }
  const calls = { limiter, idempotency, bodyBytesMax, now }
  return [
    ...chatRoutes({
      ...calls,
      completions: createChatCompletions({ dispatcher: nodes.dispatcher, log, now, makeId }),
    }),
    ...verifiedCompletionRoutes({
      ...calls,
      completions: noteOutcomes(createVerifiedCompletions(verified), outcomes),
    }),
    ...historyRoutes({
      history: createHistory({ records, isOpen }),
      evidence: createEvidence({ ...dependencies.evidence, records, isOpen, log }),
    }),
    ...imageRoutes({ ...calls, ...upstream }),
    rootRoute,
    ...modelRoutes(models),
    ...verifiedModelRoutes(createVerifiedModels({ ...offered, credentials, outcomes })),
    ...attestationRoutes(createAttestations({ enclaves, now: () => performance.now() })),
    ...healthRoutes(createReadiness(checks, () => performance.now())),
    ...embeddingRoutes({ ...calls, ...upstream }),
    ...searchRoutes({ ...calls, ...upstream }),
    ...rateLimitRoutes(limiter),
    ...keyRoutes(createManagedKeys({ keys, now })),
    ...nodeRoutes({ nodes: createOwnedNodes(owned), network: createNetworkStats(owned) }),
    ...logRoutes(createLogs({ ...dependencies, isOpen })),
  ]
}

/** The models of these services, as `GET /v1/models` lists them. Nodes' come and go, so that it is asked each time. */
function listUpstreamModels({ embeddings, images }: UpstreamServices): readonly UpstreamModel[] {
  return [
    ...embeddings.models.map(({ id, inputTokensMax }) => ({
      id,
      owner: 'embeddings' as const,
      contextLength: inputTokensMax,
    })),
    ...images.models().map((id) => ({ id, owner: 'images' as const, contextLength: null })),
  ]
}
