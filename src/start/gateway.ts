import type { App } from '../api/app.ts'
import type { RelayerFollowers } from '../chain/relayer-followers.ts'
import { createRelayerOperations } from '../chain/relayer-operations.ts'
import { createRelayersStore } from '../chain/relayers-store.ts'
import type { GatewayConfig } from '../config.ts'
import { createEnclaveOperations, type EnclavePool } from '../enclaves/enclave-pool.ts'
import type { Logger } from '../observability/logger.ts'
import { createMeter } from '../observability/metrics/meter.ts'
import { traceCalls } from '../observability/trace-calls.ts'
import { openTraces } from '../observability/tracer.ts'
import { VERSION } from '../runtime/version.ts'
import { listen, tryAddress } from './address.ts'
import { assembleApp } from './assemble-app.ts'
import { describeGateway, type GatewayFacts } from './gateway-facts.ts'
import { openHome } from './home.ts'
import { openKeys } from './keys.ts'
import { chooseTiers, openLimits } from './limits.ts'
import { startMetrics } from './metrics.ts'
import { type DemoAgent, startDemoAgent } from './node-agent.ts'
import { startNodes } from './nodes.ts'
import { startNotary } from './notary.ts'
import { warnOfOpenHistory } from './open-history.ts'
import { startParts } from './parts.ts'
import { startUpstream } from './upstream.ts'

/** A gateway that serves. `stop` finishes running calls, commits, and ends every part; calling it twice is one stop. */
export type Gateway = { readonly facts: GatewayFacts; stop(): Promise<void> }

/**
 * Starts everything that the configuration asks for and serves. When something fails, all that was started is ended
 * again and it rejects with StartFailure or DataFolderInUse, whose messages are for whoever started it.
 */
export async function startGateway(config: GatewayConfig, log: Logger): Promise<Gateway> {
  const tiers = await chooseTiers(config.tiersFile, config)
  await tryAddress(config)
  warnOfOpenHistory(config, log)
  await using started = new AsyncDisposableStack()
  const onStarted = (stop: () => Promise<void>) => started.defer(stop)
  const home = config.isProduction ? null : await openHome(config.dataFolder)
  if (home !== null) started.defer(() => home.leave())
  // Known only later, and told of the chain's restarts from the beginning.
  const later: { broadcaster?: Pick<RelayerFollowers, 'notify'> } = {}
  const onChainRestart = () => later.broadcaster?.notify()
  const parts = await startParts(config, { home, log, onStarted, onChainRestart })
  const [database, chain, { local }] = parts
  const meter = config.metrics === null ? null : createMeter()
  const notary = await startNotary(config, { parts, countCommit: meter?.countCommit, onStarted, log })
  later.broadcaster = notary.broadcaster
  const { enclaves, commits } = notary
  const keys = await openKeys(config, {
    database,
    home,
    tiers: [...tiers.byName.keys()],
    enclaves: createEnclaveOperations(enclaves),
    relayers: createRelayerOperations({
      ...{ rpc: chain.rpc, chainId: chain.chainId, current: chain.relayer.address },
      relayers: createRelayersStore(database),
    }),
    onStarted,
  })
  const limits = await openLimits({
    ...{ database, tiers, enclaves, commits, log },
    areEnclavesLocal: () => local !== null && areWithin(enclaves, parts[2].socketPaths),
  })
  onStarted(() => limits.stop())
  const nodes = await startNodes({ database, keys: keys.keys, log })
  onStarted(() => nodes.stop())
  const demoOrigin = local?.demoOrigin ?? null
  const upstream = startUpstream(config, { demoOrigin, nodeImages: nodes.connected.images, log })
  onStarted(() => upstream.stop())
  const metrics =
    config.metrics === null || meter === null
      ? null
      : await startMetrics(config.metrics, { meter, database, chain, ...notary, nodes: nodes.connected })
  onStarted(async () => metrics?.close())
  const traces =
    config.traces === null ? null : openTraces(config.traces, { version: VERSION, now: Date.now, log })
  onStarted(async () => traces?.close())
  const observers = [
    ...(meter === null ? [] : [meter.calls]),
    ...(traces === null ? [] : [traceCalls(traces.tracer)]),
  ]
  const services = { ...notary, committer: commits, keys: keys.keys, limits, nodes, upstream }
  const app = assembleApp(config, { parts, ...services, observers, log })
  const isServed = () => nodes.connected.dispatcher.models().length > 0
  const served = await serve(app, config, { apiKey: keys.shown, demoOrigin, isServed, onStarted, log })
  const running = started.move()
  const shown = { ...served, metricsUrl: metrics?.url ?? null, apiKey: keys.shown }
  return { facts: describeGateway(config, parts, shown), stop: () => running.disposeAsync() }
}

/** Whether all enclaves are at these sockets. */
function areWithin(enclaves: EnclavePool, socketPaths: readonly string[]): boolean {
  return enclaves.list().every(({ socketPath }) => socketPaths.includes(socketPath))
}

/** Listens, and starts the agent of the demonstration, which dials in. */
async function serve(
  app: App,
  config: GatewayConfig,
  {
    onStarted,
    ...demonstration
  }: Omit<Parameters<typeof startDemoAgent>[1], 'url'> & {
    readonly onStarted: (stop: () => Promise<void>) => void
  },
): Promise<{ readonly url: string; readonly nodeId: string | null }> {
  const url = await listen(app, config)
  // The app is closed first, because the agent may be serving its last calls.
  let agent: DemoAgent | null = null
  onStarted(async () => {
    await app.close()
    await agent?.stop()
  })
  agent = await startDemoAgent(config, { url, ...demonstration })
  return { url, nodeId: agent?.ready.nodeId ?? null }
}
