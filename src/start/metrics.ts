import { fetchBalance } from '../chain/chain-reads.ts'
import type { Reanchorer } from '../chain/reanchorer.ts'
import type { RelayerFollowers } from '../chain/relayer-followers.ts'
import { createAnchorLag, createRelayersStore } from '../chain/relayers-store.ts'
import type { GatewayConfig } from '../config.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import { StartFailure } from '../local/supervised-process.ts'
import type { Hub } from '../nodes/hub.ts'
import { registerSources } from '../observability/metrics/gauges.ts'
import type { Meter } from '../observability/metrics/meter.ts'
import { type MetricsServer, startMetricsServer } from '../observability/metrics/server.ts'
import { listSources } from '../observability/metrics/sources.ts'
import type { Database } from '../storage/database.ts'
import type { EnclaveCommits } from '../verified/enclave-commits.ts'
import type { Chain } from './chain.ts'

/** Serves what `meter` counts and what the parts say of themselves. Rejects with StartFailure. */
export async function startMetrics(
  at: NonNullable<GatewayConfig['metrics']>,
  {
    meter,
    database,
    chain: { rpc, chainId },
    broadcaster,
    reanchorer,
    nodes,
    enclaves,
    commits,
  }: {
    readonly meter: Meter
    readonly database: Database
    readonly chain: Pick<Chain, 'rpc' | 'chainId'>
    readonly broadcaster: Pick<RelayerFollowers, 'status' | 'relayers'>
    readonly reanchorer: Pick<Reanchorer, 'count'>
    readonly nodes: Hub
    readonly enclaves: EnclavePool
    readonly commits: Pick<EnclaveCommits, 'worst'>
  },
): Promise<MetricsServer> {
  const balanceOf = async (relayer: string) => [relayer, await fetchBalance(rpc, relayer)] as const
  const sources = listSources({
    committer: () => commits.worst(),
    broadcaster: () => broadcaster.status(),
    nodes: () => nodes.status(),
    nodeStates: () => nodes.countStates(),
    enclaves,
    anchorLag: createAnchorLag(createRelayersStore(database), chainId),
    reanchored: () => reanchorer.count(),
    balances: async () => new Map(await Promise.all(broadcaster.relayers().map(balanceOf))),
    now: Date.now,
  })
  const { registry } = meter
  const refresh = registerSources(registry, sources)
  // Scrapes at the same time share one.
  let scrape: Promise<string> | null = null
  const read = () => {
    scrape ??= refresh()
      .then(() => registry.metrics())
      .finally(() => {
        scrape = null
      })
    return scrape
  }
  try {
    return await startMetricsServer({ contentType: registry.contentType, read }, at)
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : null
    throw new StartFailure(
      `metrics: METRICS_HOST ${at.host} and METRICS_PORT ${at.port} cannot be listened on (${code})`,
    )
  }
}
