import { openAdminLog } from './accounts/open-admin-log.ts'
import { openKeys } from './accounts/open-keys.ts'
import { openLimits } from './accounts/open-limits.ts'
import { openApp } from './api/app.ts'
import { helloRoutes, rootRoute } from './api/openapi/routes.ts'
import { listenAt, tryAddress } from './api/server.ts'
import { openBus } from './bus/bus.ts'
import { judgeAnswer } from './chat/chat-completions.ts'
import { openChat } from './chat/open-chat.ts'
import { type GatewayConfig, readGatewayConfig } from './config.ts'
import { openEmbeddings } from './embeddings/embeddings.ts'
import { embeddingRoutes } from './embeddings/routes.ts'
import { openEnclaves, openServiceEnclaves } from './enclaves/open-enclaves.ts'
import { startFoundation } from './foundation.ts'
import type { Gateway, OwnParts } from './gateway.ts'
import { checkImages } from './images/checked-images.ts'
import { openImages } from './images/images.ts'
import { imageRoutes } from './images/routes.ts'
import { demoEmbeddings, demoImages, withDemoCredential } from './local/demo-provider.ts'
import { developmentRoutes } from './local/development-routes.ts'
import { writeExpectations } from './local/expectations.ts'
import { startDemoAgent } from './local/node-agent.ts'
import { openNodes } from './nodes/hub/open-nodes.ts'
import type { Logger, ProcessLogger } from './observability/logger.ts'
import { openMetrics } from './observability/metrics.ts'
import { openCallTraces } from './observability/traces.ts'
import { watchDescriptors } from './observability/watch-descriptors.ts'
import { openControlSockets, openOperator } from './operator.ts'
import { openProviders } from './providers/open-providers.ts'
import { readProviderCas } from './providers/provider-cas.ts'
import { openSettings, readReloadable } from './reload.ts'
import { unixMs } from './runtime/clock.ts'
import { pause } from './runtime/loop.ts'
import type { OnStarted } from './runtime/starting.ts'
import { searchRoutes } from './search/routes.ts'
import { openWebSearch } from './search/web-search.ts'
import { warnOfStaging } from './staging.ts'
import { checkDatabase } from './storage/database.ts'
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
  const base = { log, onStarted }
  warnOfStaging(config, base)
  const { home, database, chain, anchoring, local } = await startFoundation(config, own, base)
  const { domain } = anchoring
  const adminLog = await openAdminLog(database, log)
  const metrics = openMetrics(config)

  const { records, historyRoutes } = openRecords(config, { ...base, database, adminLog, anchoring })
  const committing = { ...base, database, records, anchoring, metrics }
  const { commits, ...following } = openCommits(config, committing)
  const pooled = { ...base, ...following, local, domain, adminLog }
  const enclaves = await openEnclaves(config, pooled, own.enclaves)

  const { keys, shown } = await openKeys(config, { database, home, adminLog, keys: own.keys })
  const warn = (sentence: string) => log.warn({}, sentence)
  const read = () => readReloadable(readGatewayConfig(undefined, warn), own)
  const settings = openSettings({ first, read, adminLog, log, now: Date.now })
  const { tiers } = settings
  const credentials =
    local === null ? settings.credentials : withDemoCredential(settings.credentials)
  const operator = openOperator({ database, adminLog, keys, tiers, enclaves, anchoring })
  const lease = await openProcessLease(database, base)
  const once = { ...settleLogs(enclaves, commits), findRecord: records.findByCall }
  const limits = openLimits({ ...base, ...once, database, lease, settings })
  const { limiter, idempotency } = limits

  const bus = await openBus(config.bus, { ...base, database })
  const proofFor = proofsOf(commits)
  const service = openServiceEnclaves(config, { ...base, bus, enclaves, credentials, proofFor })
  const nodes = await openNodes({
    ...base,
    database,
    lease,
    bus,
    authenticate: keys.authenticate,
    checkImage: (made) => checkImages(made, { n: 1, size: null }),
    judge: judgeAnswer,
    limits: own.nodeLimits,
    nodes: own.nodes,
  })
  const { dispatcher } = nodes.serving

  const { upstream, dataFolder, bodyBytesMax } = config
  const demoOrigin = local?.demoOrigin ?? null
  const imaging = { ...base, nodes: nodes.serving.images, dataFolder }
  const imageApi = settings.upstream('images') ?? demoImages(demoOrigin)
  const images = own.images ?? openImages(imageApi, upstream.imageStore, imaging)
  const embeddingApi = settings.upstream('embeddings') ?? demoEmbeddings(demoOrigin)
  const embeddings = own.embeddings ?? openEmbeddings(embeddingApi, base)
  const search = own.search ?? openWebSearch(settings.upstream('search'), base)

  const draining = new AbortController()
  const isDraining = () => draining.signal.aborted
  const providerModels = [...config.providerModels, ...(local?.models ?? [])]
  const startedAt = Math.floor(Date.now() / 1000)
  const listed = { enclaves, providerModels, startedAt }
  const bounded = { limiter, idempotency, bodyBytesMax, now: unixMs }
  const served = { dispatcher, upstream: { embeddings, images } }
  const chat = openChat({ ...bounded, ...listed, ...served, log })
  const demo = own.attested ?? local?.attested ?? null
  const asking = { ...base, credentials, providerCas: await readProviderCas(demo) }
  const calling = { ...asking, ...listed, limiter, idempotency, service, commits }
  const calls = openVerifiedCalls(config, { ...calling, database, anchoring, metrics, isDraining })
  const logs = openLogs(config, { database, records })
  const collecting = { ...asking, database, enclaves, anchoring, metrics, now: Date.now }
  const providers = await openProviders(config, { ...collecting, demo })
  const development = await writeExpectations({ home, local, enclaves })
  const pages = createPages({ isDevelopment: development !== null })

  // The routes are in the same order as in the documentation.
  const routes = [
    ...calls.completions,
    ...calls.counts,
    ...historyRoutes,
    ...chat.routes,
    ...imageRoutes({ ...bounded, images, publicOrigin: upstream.publicOrigin }),
    rootRoute(pages.showHome, config),
    ...helloRoutes,
    ...developmentRoutes(development?.expectations ?? null),
    ...chat.modelRoutes,
    ...calls.models,
    ...service.routes,
    ...providers.routes,
    ...calls.health,
    ...embeddingRoutes({ ...bounded, embeddings }),
    ...searchRoutes({ ...bounded, search }),
    ...limits.routes,
    ...operator.keyRoutes,
    ...nodes.routes,
    ...logs.routes,
    ...operator.adminRoutes,
    ...calls.waiting,
  ]
  await openControlSockets(config, { ...base, routes, home })
  const app = openApp(config, {
    routes,
    pages,
    keys,
    sockets: nodes.sockets,
    observers: [
      ...(metrics === null ? [] : [metrics.calls]),
      ...openCallTraces(config.traces, base),
      ...(own.observers ?? []),
    ],
    bodyRate: own.bodyRate,
    isDraining,
    log,
  })
  const metricsUrl = await metrics?.serve(
    {
      app,
      database: () => checkDatabase(database),
      commits,
      anchoring,
      nodes: nodes.serving,
      enclaves,
      providers,
      settings,
      bus,
      lines: 'lines' in log ? log.lines : null,
      now: Date.now,
    },
    onStarted,
  )
  watchDescriptors(app.server.load, base)
  const url = await listenAt(config, app)
  let agent: Awaited<ReturnType<typeof startDemoAgent>> | null = null
  // The app closes before the agent, which may still serve the app's last calls.
  onStarted(async () => {
    await app.close()
    await agent?.stop()
  })
  const isServed = () => dispatcher.models().length > 0
  if (shown !== null && demoOrigin !== null) {
    const place = { gatewayUrl: url, apiKey: shown, backendUrl: demoOrigin, isServed }
    agent = await startDemoAgent(config, place, log)
  }
  const running = started.move()
  return {
    app,
    routes,
    enclaves,
    commits,
    lease,
    nodes: nodes.serving,
    facts: {
      url,
      metricsUrl: metricsUrl ?? null,
      apiKey: shown,
      chain: {
        url: chain?.publicUrl ?? null,
        id: domain.chainId,
        contract: domain.contract,
        relayer: anchoring.relayer.address,
      },
      nodeId: agent?.ready.nodeId ?? null,
      demoOrigin,
      attested: local?.attested ?? null,
      rootFile: local?.rootFile ?? null,
      expectFile: development?.file ?? null,
      isDatabaseEmbedded: config.databaseUrl === null,
    },
    async drain(skip) {
      draining.abort()
      await pause(config.drainDelayMs, skip)
    },
    reload: settings.reload,
    stop: () => running.disposeAsync(),
  }
}
