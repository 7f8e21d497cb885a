import { Registry } from 'prom-client'
import { expect, it, vi } from 'vitest'
import {
  type GaugeSource,
  listSources,
  type MeasuredParts,
  registerSources,
  SOURCE_TIMEOUT_MS,
} from '#src/observability/gauges.ts'
import { readMetrics } from '../../support/read-metrics.ts'

const GAUGES = {
  depth: { help: 'Depth' },
  size: { help: 'Size' },
  things: { help: 'Things', label: 'kind' },
}

function open(read: GaugeSource['read']): () => Promise<Readonly<Record<string, number>>> {
  const registry = new Registry()
  const refresh = registerSources(registry, [{ name: 'well', gauges: GAUGES, read }])
  return async () => {
    await refresh()
    const samples = readMetrics(await registry.metrics())
    return Object.fromEntries(
      samples.map(({ name, labels, value }) => [[name, ...Object.values(labels)].join(' '), value]),
    )
  }
}

it('a source is read once for all its gauges, at each scrape', async () => {
  let depth = 0
  const scrape = open(() => ({ depth: ++depth, size: 7, things: new Map([['cat', 2]]) }))
  expect(await scrape()).toEqual({
    affidavit_depth: 1,
    affidavit_size: 7,
    'affidavit_things cat': 2,
    'affidavit_source_up well': 1,
  })
  expect((await scrape()).affidavit_depth).toBe(2)
})

it('a source that fails has no values, rather than those of the scrape before', async () => {
  let isAway = false
  const scrape = open(async () => {
    if (isAway) throw new Error('away')
    return { depth: 1, size: 2, things: new Map([['cat', 1]]) }
  })
  await scrape()
  isAway = true
  expect(await scrape()).toEqual({ 'affidavit_source_up well': 0 })
})

it('a source that does not know one value leaves that one out, and values of labels that are gone', async () => {
  let kinds = new Map([['cat', 1]])
  const scrape = open(() => ({ depth: null, size: 0, things: kinds }))
  await scrape()
  kinds = new Map([['dog', 1]])
  expect(await scrape()).toEqual({
    affidavit_size: 0,
    'affidavit_things dog': 1,
    'affidavit_source_up well': 1,
  })
})

it('a source that hangs holds up no scrape for longer than its time, and is not asked again meanwhile', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  try {
    const read = vi.fn(() => new Promise<never>(() => undefined))
    const scrape = open(read)
    const first = scrape()
    await vi.advanceTimersByTimeAsync(SOURCE_TIMEOUT_MS)
    expect(await first).toEqual({ 'affidavit_source_up well': 0 })
    expect(await scrape()).toEqual({ 'affidavit_source_up well': 0 })
    expect(read).toHaveBeenCalledTimes(1)
  } finally {
    vi.useRealTimers()
  }
})

const read = (name: string, parts: Partial<MeasuredParts>) =>
  listSources({ bus: null, lines: null, ...parts } as MeasuredParts)
    .find((source) => source.name === name)
    ?.read()

it('listSources tells of a bus that is down, and nothing of one that is not asked for', () => {
  const refused = new Map([
    ['forged', 2],
    ['stale', 1],
  ])
  const bus = { status: () => ({ isUp: false, peers: 0, channels: 2, refused }) }
  const none = { bus_up: null, bus_peers: null, bus_channels: null }
  expect(read('bus', { bus })).toEqual({
    bus_up: 0,
    bus_peers: 0,
    bus_channels: 2,
    bus_messages_refused_total: 3,
  })
  expect(read('bus', {})).toEqual({ ...none, bus_messages_refused_total: null })
})

it('listSources tells of log lines that were dropped', () => {
  const lines = () => ({ dropped: 3, waitingBytes: 512 })
  expect(read('log', { lines })).toEqual({ log_lines_dropped_total: 3, log_waiting_bytes: 512 })
})
