import { openAdminLog } from './accounts/open-admin-log.ts'
import { openKeys } from './accounts/open-keys.ts'
import { openLimits } from './accounts/open-limits.ts'
import { helloRoutes, rootRoute } from './api/openapi/routes.ts'
import { tryAddress } from './api/server.ts'
import { openBus } from './bus/bus.ts'
import { judgeAnswer } from './chat/chat-completions.ts'
import { type GatewayConfig, readGatewayConfig } from './config.ts'
import { openEnclaves, openServiceEnclaves } from './enclaves/open-enclaves.ts'
import { startFoundation } from './foundation.ts'
import { factsOf, type Gateway, type OwnParts } from './gateway.ts'
import { checkImages } from './images/checked-images.ts'
import { withDemoCredential } from './local/demo-provider.ts'
import { developmentRoutes } from './local/development-routes.ts'
import { writePolicy } from './local/policy.ts'
import { openNodes } from './nodes/hub/open-nodes.ts'
import { NODE_LIMITS } from './nodes/runs/limits.ts'
import type { Logger, ProcessLogger } from './observability/logger.ts'
import { openMetrics } from './observability/metrics.ts'
import { openControlSockets, openOperator } from './operator.ts'
import { openPlain } from './plain.ts'
import { openProviders } from './providers/open-providers.ts'
import { readProviderCas } from './providers/provider-cas.ts'
import { openSettings, readReloadable } from './reload.ts'
import { pause } from './runtime/loop.ts'
import type { OnStarted } from './runtime/starting.ts'
import { serve } from './serve.ts'
import { warnOfStaging } from './staging.ts'
import { openProcessLease } from './storage/process-lease.ts'
import { openVerifiedCalls } from './verified/calls/open-calls.ts'
import { openCommits, proofsOf, settleLogs } from './verified/commits/enclave-commits.ts'
import { openLogs } from './verified/logs/open-logs.ts'
import { openRecords } from './verified/records/open-records.ts'
import { createPages } from './web/routes.ts'

/**
 * Starts all parts that the configuration asks for, and starts to serve. Only this function puts
 * the parts together, in production and in tests. If a part cannot start, ends the parts that it
 * started, and rejects with StartFailure or DataFolderInUse. The messages of these errors are for
 * the user who started the gateway.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: parts, put together in one place
export async function compose(
  config: GatewayConfig,
  log: Logger | ProcessLogger,
  own: OwnParts = {},
): Promise<Gateway> {
  const first = await readReloadable(config, own)
  await tryAddress(config)
  await using started = new AsyncDisposableStack()
  const onStarted: OnStarted = (stop) => started.defer(stop)
  warnOfStaging(config, { log, onStarted })
  const foundation = await startFoundation(config, own, { log, onStarted })
  const { home, database, anchoring, local } = foundation
  const adminLog = await openAdminLog(database, log)
  const metrics = openMetrics(config)
  const base = { log, onStarted, database, anchoring, adminLog, metrics }

  const { records, historyRoutes } = openRecords(config, base)
  const { commits, ...following } = openCommits(config, { ...base, records })
  const pooled = { ...base, ...following, local, domain: anchoring.domain }
  const enclaves = await openEnclaves(config, pooled, own.enclaves)

  const { keys, shown } = await openKeys(config, { ...base, home, keys: own.keys })
  const warn = (sentence: string) => log.warn({}, sentence)
  const read = () => readReloadable(readGatewayConfig(undefined, warn), own)
  const settings = openSettings({ ...base, first, read, now: Date.now })
  const credentials =
    local === null ? settings.credentials : withDemoCredential(settings.credentials)
  const operator = openOperator(config, { ...base, keys, tiers: settings.tiers, enclaves })
  const lease = await openProcessLease(database, base)
  const once = { ...settleLogs(enclaves, commits), findRecord: records.findByCall }
  const { limiter, idempotency, ...limits } = openLimits({ ...base, ...once, lease, settings })

  const bus = await openBus(config.bus, base)
  const proofFor = proofsOf(commits)
  const service = openServiceEnclaves(config, { ...base, bus, enclaves, credentials, proofFor })
  const nodes = await openNodes({
    ...base,
    lease,
    bus,
    authenticate: keys.authenticate,
    checkImage: (made) => checkImages(made, { n: 1, size: null }),
    judge: judgeAnswer,
    limits: own.nodeLimits ?? { ...NODE_LIMITS, ...config.nodeWaits },
    nodes: own.nodes,
  })

  const draining = new AbortController()
  const isDraining = () => draining.signal.aborted
  const providerModels = [...config.providerModels, ...(local?.models ?? [])]
  const startedAt = Math.floor(Date.now() / 1000)
  const calling = { ...base, enclaves, providerModels, startedAt, limiter, idempotency }
  const plain = openPlain(config, { ...calling, nodes: nodes.serving, settings, local, own })
  const attested = own.attested ?? local?.attested ?? null
  const asking = { credentials, providerCas: await readProviderCas(attested) }
  const verifying = { ...calling, ...asking, service, commits, isDraining }
  const calls = openVerifiedCalls(config, verifying)
  const collecting = { ...base, ...asking, enclaves, demo: attested, now: Date.now }
  const providers = await openProviders(config, collecting)
  const development = await writePolicy({ home, local, enclaves })
  const pages = createPages({ isDevelopment: development !== null })

  // The routes are in the same order as in the documentation.
  const routes = [
    ...calls.completions,
    ...calls.counts,
    ...historyRoutes,
    ...plain.chat,
    ...plain.images,
    rootRoute(pages.showHome, config),
    ...helloRoutes,
    ...developmentRoutes(development?.policy ?? null),
    ...plain.models,
    ...calls.models,
    ...service.routes,
    ...providers.routes,
    ...calls.health,
    ...plain.embeddings,
    ...plain.search,
    ...limits.routes,
    ...operator.keyRoutes,
    ...nodes.routes,
    ...openLogs(config, { database, records }).routes,
    ...operator.adminRoutes,
    ...calls.waiting,
  ]
  await openControlSockets(config, { ...base, routes, home })
  const parts = { enclaves, commits, lease, nodes: nodes.serving }
  const api = { routes, pages, keys, sockets: nodes.sockets, isDraining }
  const served = await serve(config, {
    ...base,
    ...parts,
    api,
    own,
    measured: { ...base, ...parts, providers, settings, bus },
    demo: shown !== null && local ? { apiKey: shown, backendUrl: local.demoOrigin } : null,
  })
  const running = started.move()
  return {
    ...parts,
    app: served.app,
    routes,
    facts: factsOf(config, { ...foundation, ...served, apiKey: shown, development }),
    async drain(skip) {
      draining.abort()
      await pause(config.drainDelayMs, skip)
    },
    reload: settings.reload,
    stop: () => running.disposeAsync(),
  }
}
