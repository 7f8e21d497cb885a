import type { InferencesStore } from './inferences-store.ts'
import type { NodesStore } from './nodes-store.ts'

/** Figures are read again after this time. Each read covers all connected nodes. */
export const NETWORK_AGE_MAX_MS = 2_000

/** The JSON value of the answer (interface facts). The throughputs are the nodes' claims. */
export type NetworkStats = { read(): Promise<object> }

/** All requests within NETWORK_AGE_MAX_MS get the same figures. `now` is Unix milliseconds. */
export function createNetworkStats(options: {
  readonly nodes: Pick<NodesStore, 'network'>
  readonly inferences: Pick<InferencesStore, 'network'>
  readonly now: () => number
}): NetworkStats {
  const { nodes, inferences, now } = options
  let last: { readonly reply: Promise<object>; readonly askedAtMs: number } | null = null

  async function ask(): Promise<object> {
    const [network, { inferencesDay }] = await Promise.all([
      nodes.network(),
      inferences.network(Math.floor(now() / 1000)),
    ])
    return {
      nodes_count: network.nodes,
      connected_nodes_count: network.connectedNodes,
      network_throughput: throughputText(network.tokensPerSecond),
      inference_count_day: inferencesDay,
      network_models_stats: network.models.map(({ model, tokensPerSecond }) => ({
        model_name: model,
        throughput: throughputText(tokensPerSecond),
      })),
    }
  }

  return {
    read() {
      if (last !== null && Math.abs(now() - last.askedAtMs) < NETWORK_AGE_MAX_MS) return last.reply
      const asked = { reply: ask(), askedAtMs: now() }
      last = asked
      // A failed reading is forgotten, so that later requests read again.
      asked.reply.catch(() => {
        if (last === asked) last = null
      })
      return asked.reply
    },
  }
}

function throughputText(tokensPerSecond: number): string {
  return `${tokensPerSecond.toFixed(1)} tps`
}
