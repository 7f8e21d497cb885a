import { type App, openApp } from './api/app.ts'
import { listenAt } from './api/server.ts'
import type { GatewayConfig } from './config.ts'
import type { OwnParts } from './gateway.ts'
import { startDemoAgent } from './local/node-agent.ts'
import type { ServingNodes } from './nodes/hub/open-nodes.ts'
import type { MeasuredParts } from './observability/gauges.ts'
import type { Opening, ProcessLogger } from './observability/logger.ts'
import type { Metrics } from './observability/metrics.ts'
import { openCallTraces } from './observability/traces.ts'
import { watchDescriptors } from './observability/watch-descriptors.ts'
import { checkDatabase, type Database } from './storage/database.ts'

type ServedParts = Opening & {
  readonly log: Opening['log'] | ProcessLogger
  readonly api: Omit<Parameters<typeof openApp>[1], 'bodyRate' | 'observers' | 'log'>
  readonly own: Pick<OwnParts, 'bodyRate' | 'observers'>
  readonly database: Database
  readonly metrics: Metrics | null
  readonly measured: Omit<MeasuredParts, 'app' | 'database' | 'lines' | 'nodes' | 'now'>
  readonly nodes: ServingNodes
  /** Settings of the node that a development gateway starts. Null: this gateway starts no node. */
  readonly demo: { readonly apiKey: string; readonly backendUrl: string } | null
}

/**
 * Serves the metrics and the API, then starts the demonstration's node. `metricsUrl` is null
 * without metrics. `nodeId` is null if no node was started. Rejects with StartFailure.
 */
export async function serve(
  config: GatewayConfig,
  { api, own, database, metrics, measured, nodes, demo, log, onStarted }: ServedParts,
): Promise<{
  readonly app: App
  readonly url: string
  readonly metricsUrl: string | null
  readonly nodeId: string | null
}> {
  const observers = [
    ...(metrics === null ? [] : [metrics.calls]),
    ...openCallTraces(config.traces, { log, onStarted }),
    ...(own.observers ?? []),
  ]
  const app = openApp(config, { ...api, observers, bodyRate: own.bodyRate, log })
  const lines = 'lines' in log ? log.lines : null
  const readable = { app, nodes, lines, database: () => checkDatabase(database), now: Date.now }
  const metricsUrl = (await metrics?.serve({ ...measured, ...readable }, onStarted)) ?? null
  watchDescriptors(app.server.load, { log, onStarted })
  const url = await listenAt(config, app)
  let agent: Awaited<ReturnType<typeof startDemoAgent>> | null = null
  // The app closes before the demonstration's node, because this node serves the app's last calls.
  onStarted(async () => {
    await app.close()
    await agent?.stop()
  })
  if (demo !== null) {
    const isServed = () => nodes.dispatcher.models().length > 0
    agent = await startDemoAgent(config, { ...demo, gatewayUrl: url, isServed }, log)
  }
  return { app, url, metricsUrl, nodeId: agent?.ready.nodeId ?? null }
}
