import { accountActs } from './accounts/account-acts.ts'
import { actRoutes } from './accounts/acts.ts'
import { adminLogActs } from './accounts/admin-log-acts.ts'
import type { AdminLog } from './accounts/admin-log-store.ts'
import type { ApiKeys } from './accounts/api-keys.ts'
import { budgetActs } from './accounts/budget-acts.ts'
import { createBudgetsStore } from './accounts/budgets-store.ts'
import { keyActs } from './accounts/key-acts.ts'
import { keyRoutes } from './accounts/key-routes.ts'
import type { CallLimits } from './accounts/open-limits.ts'
import { rateLimitRoutes } from './accounts/rate-limit-routes.ts'
import { usageActs } from './accounts/usage-acts.ts'
import { usageRoutes } from './accounts/usage-routes.ts'
import { rootRoute } from './api/openapi/routes.ts'
import type { Route } from './api/route.ts'
import type { Anchoring } from './chain/anchoring.ts'
import { relayerActs } from './chain/relayer-acts.ts'
import { listWaitingAnchors } from './chain/waiting-anchors-store.ts'
import { createChatCompletions } from './chat/chat-completions.ts'
import { createModels, modelRoutes, type UpstreamModel } from './chat/models.ts'
import { chatRoutes } from './chat/routes.ts'
import type { GatewayConfig } from './config.ts'
import type { Embeddings } from './embeddings/embeddings.ts'
import { embeddingRoutes } from './embeddings/routes.ts'
import { attestationRoutes, encryptionKeyRoutes } from './enclaves/attestation-routes.ts'
import { createAttestations } from './enclaves/attestations.ts'
import { enclaveActs } from './enclaves/enclave-acts.ts'
import { createAttestationCheck } from './enclaves/enclave-check.ts'
import type { EnclavePool } from './enclaves/enclave-pool.ts'
import { proofPatienceMs } from './enclaves/encrypted-answer.ts'
import type { PeerEnclaves } from './enclaves/peer-enclaves.ts'
import { joinEnclaves } from './enclaves/service-enclaves.ts'
import type { Images } from './images/images.ts'
import { imageRoutes } from './images/routes.ts'
import { developmentRoutes } from './local/development-routes.ts'
import type { DevelopmentExpectations } from './local/expectations.ts'
import type { NodeRegistry, ServingNodes } from './nodes/hub/open-nodes.ts'
import { createNetworkStats } from './nodes/registry/network-stats.ts'
import { createOwnedNodes } from './nodes/registry/owned-nodes.ts'
import { nodeRoutes } from './nodes/registry/registry-routes.ts'
import { timed } from './observability/call-scope.ts'
import type { Logger } from './observability/logger.ts'
import { searchRoutes } from './search/routes.ts'
import type { WebSearch } from './search/web-search.ts'
import { checkDatabase, type Database } from './storage/database.ts'
import { verifiedCompletionRoutes } from './verified/calls/completion-routes.ts'
import { createReadiness, healthRoutes } from './verified/calls/health.ts'
import { createVerifiedModels, verifiedModelRoutes } from './verified/calls/models.ts'
import type { ProviderLists } from './verified/calls/provider-lists.ts'
import {
  createModelOutcomes,
  createVerifiedCompletions,
} from './verified/calls/verified-completions.ts'
import { waitingRoutes } from './verified/calls/waiting-routes.ts'
import type { EnclaveCommits } from './verified/commits/enclave-commits.ts'
import { createAnchoredHeadsStore } from './verified/logs/anchored-heads-store.ts'
import { createBootStatementsStore } from './verified/logs/boot-statements-store.ts'
import { findRoutes } from './verified/logs/find-routes.ts'
import { createFinder } from './verified/logs/finder.ts'
import { createHeadAttestationsStore } from './verified/logs/head-attestations-store.ts'
import { logRoutes } from './verified/logs/log-routes.ts'
import { createLogs } from './verified/logs/logs.ts'
import { createLogsStore } from './verified/logs/logs-store.ts'
import { contentActs } from './verified/records/content-acts.ts'
import { erasureActs } from './verified/records/erasure-acts.ts'
import { recordErasures } from './verified/records/erasures.ts'
import { createEvidence } from './verified/records/evidence.ts'
import { createHistory } from './verified/records/history.ts'
import { historyRoutes } from './verified/records/history-routes.ts'
import type { RecordsStore, StoredRecord } from './verified/records/records-store.ts'
import type { Pages } from './web/routes.ts'

/** What the routes are over; all of it runs. */
export type Capabilities = {
  readonly database: Database
  readonly anchoring: Anchoring
  readonly records: RecordsStore
  readonly enclaves: EnclavePool
  /** Models of the demo provider; none in production. */
  readonly demoModels: readonly string[]
  /** Those of the other gateways; null for a gateway that is alone. */
  readonly peerEnclaves: PeerEnclaves | null
  readonly commits: EnclaveCommits
  readonly keys: ApiKeys
  readonly limits: CallLimits<StoredRecord>
  /** Names of the tiers that accounts may be in. */
  readonly tiers: () => readonly string[]
  readonly registry: NodeRegistry
  /** The operator's, by provider name; asked once by each call. */
  readonly credentials: () => ReadonlyMap<string, string>
  readonly adminLog: AdminLog
  readonly nodes: ServingNodes
  readonly upstream: UpstreamServices
  readonly pages: Pages
  /** What providers say of their models. */
  readonly providerLists: Pick<ProviderLists, 'listed'>
  /** Null when the enclaves are the operator's. */
  readonly developmentExpectations: DevelopmentExpectations | null
  /** Unix milliseconds, with a fraction. */
  readonly now: () => number
  /** Whether it is about to stop, and is to be given no more calls. */
  readonly isDraining: () => boolean
  /** A new id that cannot be guessed, letters and digits. */
  readonly makeId: () => string
  readonly log: Logger
}

/**
 * What is served by services that the operator configured, rather than by nodes or through the
 * enclave.
 */
export type UpstreamServices = {
  readonly embeddings: Embeddings
  readonly search: WebSearch
  readonly images: Images
}

/**
 * Every route, each over the services that it calls, in the order in which the documentation has
 * them; those of the operator are on the control socket alone. What calls wait for is timed, as
 * phases of theirs.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: the list of all routes
export function listRoutes(config: GatewayConfig, capabilities: Capabilities): readonly Route[] {
  const { database, anchoring, records, enclaves, commits, keys, registry, nodes, upstream } =
    capabilities
  const { adminLog, credentials } = capabilities
  const { limiter, idempotency, usage } = capabilities.limits
  const { now, makeId, log } = capabilities
  const { bodyBytesMax, isHistoryOpen: isOpen } = config
  const monotonic = () => performance.now()
  const { tiers } = capabilities
  const { listRelayers } = anchoring
  const acting = { database, adminLog, tiers, enclaves, listRelayers }
  const { peerEnclaves: peers } = capabilities
  const service = joinEnclaves(enclaves, peers)

  const outcomes = createModelOutcomes(now)
  const verified = { enclaves, committer: commits, credentials, outcomes, now, log }
  const dispatcher = { dispatch: timed({ phase: 'node', now }, nodes.dispatcher.dispatch) }
  const providerModels = [...config.providerModels, ...capabilities.demoModels]
  const offered = { enclaves, providerModels, startedAt: Math.floor(now() / 1000) }
  const models = createModels({
    ...offered,
    dispatcher: nodes.dispatcher,
    listUpstream: () => listUpstreamModels(upstream),
  })
  const checks = {
    database: () => checkDatabase(database),
    enclave: () => enclaves.document(),
    attestation: createAttestationCheck({
      isRootKnown: config.isProduction && !config.isStaging,
      now: Date.now,
    }),
    commits: commits.status,
    chain: anchoring.status,
    unreadableBlocks: anchoring.unreadableBlocks,
  }
  const onArchived = (nodeId: string) => void nodes.disconnect(nodeId, 'Node is archived')
  const logsStore = createLogsStore(database)
  const logs = createLogs({
    records,
    isOpen,
    logs: logsStore,
    headAttestations: createHeadAttestationsStore(database),
    bootStatements: createBootStatementsStore(database),
  })
  const calls = { limiter, idempotency, bodyBytesMax, now }
  const completions = createVerifiedCompletions(verified)
  return [
    ...verifiedCompletionRoutes({
      ...calls,
      completions,
      callsMax: config.verifiedCallsMax,
      encrypted: {
        credentials,
        limiter,
        outcomes,
        bodyBytesMax,
        now,
        log,
        enclaves: service,
        requireCommits: completions.requireCommits,
        recordOf: completions.recordOf,
        patienceMs: proofPatienceMs(config.anchorIntervalMs),
      },
    }),
    ...historyRoutes({
      history: createHistory({
        records,
        isOpen,
        erasures: { eraseRecords: recordErasures(adminLog) },
      }),
      evidence: createEvidence({
        ...anchoring.evidence,
        records,
        isOpen,
        source: config.source,
        log,
      }),
      isEvidencePublic: config.isEvidencePublic,
    }),
    ...chatRoutes({
      ...calls,
      completions: createChatCompletions({ dispatcher, log, now, makeId }),
    }),
    ...imageRoutes({
      ...calls,
      images: upstream.images,
      publicOrigin: config.upstream.publicOrigin,
    }),
    rootRoute(capabilities.pages.showHome, config),
    ...developmentRoutes(capabilities.developmentExpectations),
    ...modelRoutes(models),
    ...verifiedModelRoutes(
      createVerifiedModels({
        ...offered,
        credentials,
        outcomes,
        lists: capabilities.providerLists,
      }),
    ),
    ...attestationRoutes(
      createAttestations({
        enclaves,
        peers,
        listNotaries: service.notaries,
        now: monotonic,
      }),
    ),
    ...encryptionKeyRoutes(service),
    ...healthRoutes(createReadiness(checks, monotonic), capabilities.isDraining, config),
    ...embeddingRoutes({ ...calls, embeddings: upstream.embeddings }),
    ...searchRoutes({ ...calls, search: upstream.search }),
    ...rateLimitRoutes(limiter),
    ...usageRoutes({ usage, flush: () => limiter.flush(), now }),
    ...keyRoutes({ keys, budgets: createBudgetsStore(database), adminLog, now }),
    ...actRoutes(adminLogActs, acting),
    ...nodeRoutes({
      nodes: createOwnedNodes({ ...registry, onArchived, now }),
      network: createNetworkStats({ ...registry, now }),
    }),
    ...logRoutes(logs),
    ...findRoutes(
      createFinder({
        records,
        logs: logsStore,
        heads: createAnchoredHeadsStore(database),
        isEvidencePublic: config.isEvidencePublic,
      }),
    ),
    ...actRoutes(accountActs, acting),
    ...actRoutes(budgetActs, acting),
    ...actRoutes(enclaveActs, acting),
    ...actRoutes(relayerActs, acting),
    ...actRoutes(keyActs, acting),
    ...actRoutes(usageActs, acting),
    ...actRoutes(erasureActs, acting),
    ...actRoutes(contentActs, acting),
    ...waitingRoutes({
      commits,
      anchoring,
      listAnchors: (limit) => listWaitingAnchors(database, limit),
    }),
  ]
}

/**
 * The models of these services, as `GET /v1/models` lists them. Nodes' come and go, so that it is
 * asked each time.
 */
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
