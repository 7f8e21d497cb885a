import { randomBytes, randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { type Accounts, createAccounts } from './accounts/accounts.ts'
import { createAdminLog } from './accounts/admin-log-store.ts'
import type { ApiKeys } from './accounts/api-keys.ts'
import { createBudgetsStore } from './accounts/budgets-store.ts'
import { SETTLE_SECONDS } from './accounts/idempotency.ts'
import { createKeysStore, type KeysStore } from './accounts/keys-store.ts'
import type { Tiers } from './accounts/limits/tiers.ts'
import { keysOver, openKeys } from './accounts/open-keys.ts'
import { openLimits } from './accounts/open-limits.ts'
import { createOperations } from './accounts/operations.ts'
import { recordOperations } from './accounts/recorded-operations.ts'
import { createUsageOperations, createUsageStore } from './accounts/usage-store.ts'
import { type App, createApp } from './api/app.ts'
import type { Operator } from './api/control-operations.ts'
import { openControl, openControlAt } from './api/control-server.ts'
import type { LeastRate } from './api/least-rate.ts'
import { listenAt, tryAddress } from './api/server.ts'
import { startBus } from './bus/bus.ts'
import { judgeAnswer } from './chat/chat-completions.ts'
import { type GatewayConfig, readGatewayConfig } from './config.ts'
import { openEmbeddings } from './embeddings/embeddings.ts'
import {
  createEnclaveOperations,
  type EnclavePool,
  type EnclavePoolOptions,
  startEnclaves,
} from './enclaves/enclave-pool.ts'
import { proofPatienceMs } from './enclaves/encrypted-answer.ts'
import { openPeerEnclaves } from './enclaves/peer-enclaves.ts'
import { type OwnFoundation, startFoundation } from './foundation.ts'
import { checkImages } from './images/checked-images.ts'
import { openImages } from './images/images.ts'
import type { GatewayFacts } from './local/banner.ts'
import { demoEmbeddings, demoImages } from './local/demo-provider.ts'
import { writeExpectations } from './local/expectations.ts'
import { startDemoAgent } from './local/node-agent.ts'
import { NODE_SOCKET_PATH } from './nodes/hub/node-socket.ts'
import {
  type NodeRegistry,
  openNodeRegistry,
  openNodes,
  type ServingNodes,
} from './nodes/hub/open-nodes.ts'
import type { NodeLimits } from './nodes/runs/limits.ts'
import { type CallObserver, timed } from './observability/call-scope.ts'
import { listSources } from './observability/gauges.ts'
import type { Logger, ProcessLogger } from './observability/logger.ts'
import { createMeter, startMetrics } from './observability/metrics.ts'
import { openTraces, traceCalls } from './observability/traces.ts'
import { watchDescriptors } from './observability/watch-descriptors.ts'
import { openSettings, readReloadable } from './reload.ts'
import { listRoutes, type UpstreamServices } from './routes.ts'
import { countDescriptors, descriptorsMax } from './runtime/descriptors.ts'
import { pause } from './runtime/loop.ts'
import { VERSION } from './runtime/version.ts'
import { openWebSearch } from './search/web-search.ts'
import { STAGING_HEADERS, warnOfStaging } from './staging.ts'
import { admitContentKeys } from './storage/content-keys-store.ts'
import { openHome } from './storage/data-folder.ts'
import { checkDatabase } from './storage/database.ts'
import { openProcessLease, type ProcessLease } from './storage/process-lease.ts'
import { openServiceKey } from './storage/service-keys.ts'
import { createEndpoint, type OpenEndpoint } from './upstream/endpoint.ts'
import { askProviderLists, NO_PROVIDER_LISTS } from './verified/calls/provider-lists.ts'
import { proofOf } from './verified/commits/committed-heads.ts'
import { type EnclaveCommits, followLogs, settleLogs } from './verified/commits/enclave-commits.ts'
import { createErasureOperations, createErasureSweeper } from './verified/records/erasures.ts'
import { createErasuresStore } from './verified/records/erasures-store.ts'
import { warnOfOpenHistory } from './verified/records/history.ts'
import { createRecordsStore } from './verified/records/records-store.ts'
import { createContentOperations } from './verified/records/reencryption-store.ts'
import { createPages } from './web/routes.ts'

/** A gateway that serves. */
export type Gateway = {
  readonly facts: GatewayFacts
  readonly app: App
  readonly enclaves: EnclavePool
  readonly commits: EnclaveCommits
  readonly lease: Pick<ProcessLease, 'id'>
  readonly keys: ApiKeys
  readonly accounts: Accounts
  readonly registry: NodeRegistry
  readonly nodes: ServingNodes
  /**
   * Says that it is not ready, and serves on for the drain delay; no longer when the signal is
   * aborted.
   */
  drain(skip: AbortSignal): Promise<void>
  /** Reads tiers, prices and providers' keys again; whether they are in use. Never rejects. */
  reload(): Promise<boolean>
  /** Finishes running calls, commits, and ends every part; calling it twice is one stop. */
  stop(): Promise<void>
}

/**
 * Parts that a test brings: each stands in the place of the one that the configuration asks for.
 */
export type OwnParts = OwnFoundation & {
  /** Null: nothing is kept in a data folder, and no key is made. */
  readonly home?: null
  /** How the pool takes enclaves. */
  readonly enclaves?: Partial<
    Pick<EnclavePoolOptions, 'check' | 'isKnownLog' | 'register' | 'settleMs'>
  >
  readonly tiers?: Tiers
  /** What a reload reads. */
  readonly readConfig?: (warn: (sentence: string) => void) => GatewayConfig
  readonly keys?: ApiKeys
  readonly nodes?: ServingNodes
  readonly nodeLimits?: NodeLimits
  /** Slowest that bodies may arrive. Default LEAST_RATE. */
  readonly bodyRate?: LeastRate
  readonly upstream?: Partial<UpstreamServices>
  /** Besides those of metrics and traces. */
  readonly observers?: readonly CallObserver[]
}

/**
 * Starts everything that the configuration asks for, and serves: the one place where parts are put
 * together, in production as in tests. When something fails, all that was started is ended again
 * and it rejects with StartFailure or DataFolderInUse, whose messages are for the user who started
 * it.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: parts, put together in one place
export async function compose(
  config: GatewayConfig,
  log: Logger | ProcessLogger,
  own: OwnParts = {},
): Promise<Gateway> {
  const first = await readReloadable(config, own)
  await tryAddress(config)
  warnOfOpenHistory(config, log)
  await using started = new AsyncDisposableStack()
  const onStarted = (stop: () => Promise<void>) => started.defer(stop)
  if (config.isStaging) onStarted(warnOfStaging(log))
  const openEndpoint: OpenEndpoint = (options) => {
    const endpoint = createEndpoint(options)
    onStarted(() => endpoint.close())
    return endpoint
  }

  const home = config.isProduction || own.home === null ? null : await openHome(config.dataFolder)
  if (home !== null) onStarted(() => home.leave())
  const { database, chain, anchoring, local } = await startFoundation(config, own, {
    home,
    onStarted,
    log,
  })
  const adminLog = createAdminLog(database)
  const contentKey = await admitContentKeys(database, log)
  if (contentKey !== null)
    await adminLog.record(CONFIGURATION, { kind: 'content.use_key', target: contentKey })
  const records = createRecordsStore(database)
  const erasures = createErasuresStore(database)
  const meter = config.metrics === null ? null : createMeter(config)
  const {
    commits,
    stop: stopCommits,
    ...following
  } = followLogs({
    database,
    records,
    anchoring,
    log,
    intervalMs: config.headAttestationIntervalMs,
    anchorIntervalMs: config.anchorIntervalMs,
    onCommit: meter?.countCommit,
    onRace: meter?.countRace,
  })
  onStarted(stopCommits)
  const enclaves = await startEnclaves({
    socketPaths: local?.socketPaths ?? remoteSockets(config),
    callsMax: config.verifiedCallsMax,
    domain: anchoring.domain,
    isProduction: config.isProduction,
    isStaging: config.isStaging,
    releases: config.releases,
    recordReleases: (details) =>
      adminLog.record(CONFIGURATION, { kind: 'releases.read', target: details.file, details }),
    ...following,
    settleMs: SETTLE_SECONDS * 1000,
    endEnclaves: local === null ? null : () => local.stop(),
    onStarted,
    log,
    ...own.enclaves,
  })

  const keysStore = createKeysStore(database)
  const { keys, shown } =
    own.keys === undefined
      ? await openKeys(keysStore, {
          fixed: config.devApiKey,
          dataFolder: home?.dataFolder ?? null,
          adminLog,
        })
      : { keys: own.keys, shown: null }
  const settings = openSettings({
    first,
    adminLog,
    log,
    now: Date.now,
    async read() {
      const warn = (sentence: string) => log.warn({}, sentence)
      const { readConfig = (onWarning) => readGatewayConfig(undefined, onWarning) } = own
      return readReloadable(readConfig(warn), own)
    },
  })
  const tiers = () => settings.current().tiers
  const prices = () => settings.current().prices
  const credentials = () => settings.current().credentials
  const accountsOver = (store: KeysStore) =>
    createAccounts({ keys: store, tiers: () => [...tiers().byName.keys()], now: Date.now })
  const accounts = accountsOver(keysStore)
  const operations = recordOperations({
    database,
    log: adminLog,
    make(inside) {
      const store = createKeysStore(inside)
      return {
        ...createOperations({ keys: keysOver(store), accounts: accountsOver(store) }),
        budgets: createBudgetsStore(inside),
        usage: createUsageOperations(createUsageStore(inside)),
        ...createErasureOperations(createErasuresStore(inside)),
        content: createContentOperations(database),
        enclaves: createEnclaveOperations(enclaves),
        relayers: anchoring.operations,
      }
    },
  })
  if (home !== null) onStarted(await openControl(operations, home))
  if (config.controlSocket !== null)
    onStarted(await openControlAt(operations, config.controlSocket))
  const sweeper = createErasureSweeper({
    store: erasures,
    retentionDays: config.retentionDays,
    log,
  })
  sweeper.start()
  onStarted(() => sweeper.stop())
  const lease = await openProcessLease(database, log)
  onStarted(() => lease.stop())
  const limits = openLimits({
    database,
    lease,
    tiers,
    prices,
    log,
    ...settleLogs(enclaves, commits),
    findRecord: records.findByCall,
  })
  onStarted(() => limits.stop())

  const bus =
    config.bus === null
      ? null
      : startBus(config.bus, {
          key: await openServiceKey(database, { name: 'bus', random: randomBytes }),
          makeId,
          now: unixMs,
          log,
        })
  onStarted(async () => bus?.stop())
  const peerEnclaves =
    bus === null
      ? null
      : openPeerEnclaves({
          bus,
          enclaves,
          check: enclaves.check,
          credentials,
          log,
          patienceMs: proofPatienceMs(config.anchorIntervalMs),
          async proofFor({ notary, index, call }, signal) {
            return proofOf(call, await commits.waitFor(notary, index, signal))
          },
        })
  onStarted(async () => peerEnclaves?.stop())
  const registry = openNodeRegistry(database)
  const nodes: ServingNodes =
    own.nodes ??
    (await openNodes({
      registry,
      processId: () => lease.id(),
      authenticate: keys.authenticate,
      log,
      checkImage: (images) => checkImages(images, { n: 1, size: null }),
      limits: own.nodeLimits,
      bus,
      judge: judgeAnswer,
      now: unixMs,
    }))
  onStarted(() => nodes.stop())
  /** An upstream service whose key is read for each call. */
  const keyed = <Name extends 'embeddings' | 'images' | 'search'>(name: Name) => {
    const service = config.upstream[name]
    return service && withKey(service, () => settings.current().upstreamKeys[name])
  }
  const demoOrigin = local?.demoOrigin ?? null
  const { stop: stopImages, images } = openImages({
    config: keyed('images') ?? demoImages(demoOrigin),
    nodes: nodes.images,
    store: { ...config.upstream.imageStore, folder: join(config.dataFolder, 'images') },
    openEndpoint,
    log,
  })
  onStarted(stopImages)
  const upstream: UpstreamServices = {
    embeddings: openEmbeddings(keyed('embeddings') ?? demoEmbeddings(demoOrigin), openEndpoint),
    search: openWebSearch(keyed('search'), openEndpoint),
    images,
    ...own.upstream,
  }
  const traces =
    config.traces === null
      ? null
      : openTraces(config.traces, { version: VERSION, now: Date.now, log })
  onStarted(async () => traces?.close())

  const development =
    home === null || local === null
      ? null
      : await writeExpectations({
          dataFolder: home.dataFolder,
          rootFile: local.rootFile,
          documents: enclaves.notaries().map(({ attestation }) => attestation),
        })

  const providerLists = config.asksProviderModels
    ? askProviderLists({
        enclaves,
        credentials,
        onAsked: (asked) => meter?.countModelList(asked),
        now: () => performance.now(),
        log,
      })
    : NO_PROVIDER_LISTS
  onStarted(() => providerLists.stop())

  const capabilities = {
    database,
    anchoring,
    records,
    enclaves,
    demoModels: local?.models ?? [],
    peerEnclaves,
    commits,
    keys,
    adminLog,
    credentials,
    providerLists,
    limits,
    operations,
    registry,
    nodes,
    upstream,
    pages: createPages({ isDevelopment: development !== null }),
    developmentExpectations: development?.expectations ?? null,
  }
  const draining = new AbortController()
  const isDraining = () => draining.signal.aborted
  const app = createApp({
    routes: listRoutes(config, { ...capabilities, isDraining, makeId, now: unixMs, log }),
    pages: capabilities.pages.routes,
    showMissing: capabilities.pages.showMissing,
    keys: { authenticate: timed({ phase: 'authenticate', now: unixMs }, keys.authenticate) },
    sockets: {
      path: NODE_SOCKET_PATH,
      handleUpgrade: nodes.handleUpgrade,
      async stop(graceMs) {
        await nodes.drain?.(graceMs)
        await nodes.stop()
      },
    },
    settings: {
      keepAliveMs: config.keepAliveMs,
      corsOrigins: config.corsOrigins,
      memoryBytesMax: config.memoryBytesMax,
      shutdownGraceMs: config.shutdownGraceMs,
      trustedProxies: config.trustedProxies,
      ...(own.bodyRate === undefined ? {} : { bodyRate: own.bodyRate }),
      ...(config.isStaging ? { headers: STAGING_HEADERS } : {}),
      logsRequests: config.logLevel === 'info' || config.logLevel === 'debug',
    },
    observers: [
      ...(meter === null ? [] : [meter.calls]),
      ...(traces === null ? [] : [traceCalls(traces.tracer)]),
      ...(own.observers ?? []),
    ],
    isDraining,
    log,
    now: unixMs,
    makeRequestId: () => `req_${makeId()}`,
  })
  const metrics =
    config.metrics === null || meter === null
      ? null
      : await startMetrics(
          meter,
          listSources({
            connections: app.server.load,
            memory: app.memory,
            database: () => checkDatabase(database),
            committer: commits.worst,
            broadcaster: anchoring.status,
            nodes: nodes.status,
            nodeStates: nodes.countStates,
            enclaves: () => enclaves.identities(),
            enclaveStates: () => enclaves.countStates(),
            anchorLag: anchoring.figures.lag,
            settings: settings.status,
            reanchored: anchoring.figures.reanchored,
            unreadableBlocks: anchoring.unreadableBlocks,
            balances: anchoring.figures.balances,
            bus: bus === null ? null : () => bus.status(),
            lines: 'lines' in log ? log.lines : null,
            now: Date.now,
          }),
          config.metrics,
        )
  onStarted(async () => metrics?.close())
  const stopWatching = watchDescriptors(
    { count: countDescriptors, max: descriptorsMax(), connections: app.server.load },
    log,
  )
  onStarted(async () => stopWatching())
  const url = await listenAt(config, app)
  // The app is closed first, because the agent may be serving its last calls.
  let agent: Awaited<ReturnType<typeof startDemoAgent>> | null = null
  onStarted(async () => {
    await app.close()
    await agent?.stop()
  })
  if (shown !== null && demoOrigin !== null)
    agent = await startDemoAgent(
      {
        gatewayUrl: url,
        apiKey: shown,
        backendUrl: demoOrigin,
        dataFolder: config.dataFolder,
        drainMs: config.shutdownGraceMs,
        // Its ordinary work is of no interest here; its faults are.
        logLevel: config.logLevel === 'info' ? 'warn' : config.logLevel,
        variables: config.agentVariables,
        isServed: () => nodes.dispatcher.models().length > 0,
      },
      log,
    )
  const running = started.move()
  return {
    app,
    enclaves,
    commits,
    lease,
    keys,
    accounts,
    registry,
    nodes,
    facts: {
      url,
      metricsUrl: metrics?.url ?? null,
      apiKey: shown,
      chain: {
        url: chain?.publicUrl ?? null,
        id: anchoring.domain.chainId,
        contract: anchoring.domain.contract,
        relayer: anchoring.relayer.address,
      },
      nodeId: agent?.ready.nodeId ?? null,
      demoOrigin,
      rootFile: local?.rootFile ?? null,
      expectFile: development?.file ?? null,
      isDatabaseEmbedded: config.databaseUrl === null,
    },
    drain: async (skip) => {
      draining.abort()
      await pause(config.drainDelayMs, skip)
    },
    reload: settings.reload,
    stop: () => running.disposeAsync(),
  }
}

function withKey<Service extends object>(service: Service, readKey: () => string | null): Service {
  return Object.defineProperty({ ...service }, 'apiKey', { enumerable: true, get: readKey })
}

/** The operator, who changes settings and the files that they name. */
const CONFIGURATION: Operator = { who: 'operator', accountId: null, from: 'configuration' }

function remoteSockets({ enclave }: GatewayConfig): readonly string[] {
  return enclave.kind === 'remote' ? enclave.socketPaths : []
}

/** Read once: the clock is asked several times for each chunk. */
const TIME_ORIGIN_MS = performance.timeOrigin

/** Unix milliseconds with a fraction, of a clock that never goes back. */
function unixMs(): number {
  return TIME_ORIGIN_MS + performance.now()
}

/** An id that cannot be guessed, letters and digits. */
function makeId(): string {
  return randomUUID().replaceAll('-', '')
}
