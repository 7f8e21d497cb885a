import { expect, it } from 'vitest'
import { createNetworkStats, NETWORK_AGE_MAX_MS } from '#src/nodes/registry/network-stats.ts'

const FIGURES = {
  nodes: 3,
  connectedNodes: 2,
  tokensPerSecond: 12_345_678.06,
  models: [{ model: 'm', tokensPerSecond: 100 }],
}

function createStage() {
  let nowMs = 1_790_000_000_999
  let isAway = false
  const asked: number[] = []
  const network = createNetworkStats({
    nodes: { network: async () => FIGURES },
    inferences: {
      network: async (now) => {
        asked.push(now)
        if (isAway) throw new Error('away')
        return { inferencesDay: 42 }
      },
    },
    now: () => nowMs,
  })
  return {
    network,
    asked,
    pass: (durationMs: number) => {
      nowMs += durationMs
    },
    setAway: (away: boolean) => {
      isAway = away
    },
  }
}

it('network stats are the figures, with throughputs as text with one decimal', async () => {
  const { network, asked } = createStage()
  expect(await network.read()).toEqual({
    nodes_count: 3,
    connected_nodes_count: 2,
    network_throughput: '12345678.1 tps',
    inference_count_day: 42,
    network_models_stats: [{ model_name: 'm', throughput: '100.0 tps' }],
  })
  expect(asked).toEqual([1_790_000_000])
})

it('network stats are read once for all who ask within two seconds, whichever way the clock goes', async () => {
  const { network, asked, pass } = createStage()
  await Promise.all([network.read(), network.read()])
  pass(NETWORK_AGE_MAX_MS - 1)
  await network.read()
  expect(asked).toHaveLength(1)
  pass(1)
  await network.read()
  expect(asked).toHaveLength(2)
  pass(-3_600_000)
  await network.read()
  expect(asked).toHaveLength(3)
})

it('network stats are read again after a failure', async () => {
  const { network, setAway } = createStage()
  setAway(true)
  await expect(network.read()).rejects.toThrow('away')
  setAway(false)
  expect(await network.read()).toMatchObject({ inference_count_day: 42 })
})
