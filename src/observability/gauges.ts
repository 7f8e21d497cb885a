import { Counter, Gauge, type Registry } from 'prom-client'
import { decodeBase64 } from '#attestation/bytes.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import { METRICS_PREFIX } from './metric-forms.ts'

/** A scrape waits at most this long for one source. */
export const SOURCE_TIMEOUT_MS = 2_000

/**
 * With a label, a gauge has one value for each value of the label. If its name ends in `_total`, it
 * is a counter: a count since the start.
 */
type GaugeForm = { readonly help: string; readonly label?: string }

/** Null: the value is not known now. A map has one value for each value of the label. */
type Reading = number | null | ReadonlyMap<string, number>

/**
 * Gauges, and the function that reads their values at each scrape. Both are keyed by name, without
 * our prefix.
 */
export type GaugeSource<Name extends string = string> = {
  readonly name: string
  readonly gauges: Readonly<Record<Name, GaugeForm>>
  readonly read: () => Readonly<Record<Name, Reading>> | Promise<Readonly<Record<Name, Reading>>>
}

/**
 * Returns a function that reads all sources. Each scrape must await this function first. A source
 * that throws or takes longer than SOURCE_TIMEOUT_MS has no values in that scrape, and is 0 in
 * `source_up`. A slow source is not read again until it has answered.
 */
export function registerSources(
  registry: Registry,
  sources: readonly GaugeSource[],
): () => Promise<void> {
  const up = new Gauge({
    name: `${METRICS_PREFIX}source_up`,
    help: 'Whether the values of a part could be read',
    labelNames: ['source'] as const,
    registers: [registry],
  })
  const refreshers = sources.map((source) => {
    const read = readInTime(source)
    const gauges = Object.entries(source.gauges).map(
      ([name, form]) => [name, registerGauge(registry, name, form)] as const,
    )
    return async () => {
      const readings = await read()
      up.set({ source: source.name }, readings === null ? 0 : 1)
      for (const [name, set] of gauges) set(readings?.[name] ?? null)
    }
  })
  return async () => {
    await Promise.all(refreshers.map((refresh) => refresh()))
  }
}

function registerGauge(
  registry: Registry,
  name: string,
  { help, label }: GaugeForm,
): (reading: Reading) => void {
  const labelNames = label === undefined ? [] : [label]
  const form = { name: METRICS_PREFIX + name, help, labelNames, registers: [registry] }
  const metric = name.endsWith('_total') ? new Counter(form) : new Gauge(form)
  // A gauge without labels is removed, because a reset would set the gauge to a false 0.
  const clear = () => (label === undefined ? metric.remove() : metric.reset())
  clear()
  return (reading) => {
    clear()
    if (typeof reading === 'number') metric.inc(reading)
    else if (reading !== null && label !== undefined)
      for (const [value, count] of reading) metric.inc({ [label]: value }, count)
  }
}

/** Null: the source does not answer in time. */
function readInTime(source: GaugeSource): () => Promise<Readonly<Record<string, Reading>> | null> {
  let isRunning = false
  return async () => {
    if (isRunning) return null
    isRunning = true
    const answer = Promise.resolve()
      .then(() => source.read())
      .catch(() => null)
      .finally(() => {
        isRunning = false
      })
    const timeout = Promise.withResolvers<null>()
    const timer = setTimeout(() => timeout.resolve(null), SOURCE_TIMEOUT_MS)
    return await Promise.race([answer, timeout.promise]).finally(() => clearTimeout(timer))
  }
}

type Connections = { readonly open: number; readonly silent: number; readonly max: number }

/** `now` returns Unix milliseconds. */
export type MeasuredParts = {
  readonly app: {
    readonly server: { readonly load: () => Promise<Connections> }
    readonly memory: () => { readonly bytes: number; readonly bytesMax: number }
  }
  /** Rejects when the database does not answer. */
  readonly database: () => Promise<void>
  readonly commits: {
    /** The state of the committer with the worst phase. */
    worst(): {
      readonly phase: string
      readonly failingForMs: number
      readonly failures: number
      readonly waiting: number
      readonly size: number
    }
  }
  readonly anchoring: {
    status(): {
      readonly fault: { readonly code: string } | null
      readonly isChainFailing: boolean
      readonly blockNumber: number | null
      readonly pendingCount: number
      readonly revertedCount: number
      readonly takenCount: number
    }
    readonly unreadableBlocks: () => { readonly count: number }
    readonly figures: {
      /** `oldestAt`: Unix seconds. Null when all anchors are confirmed. */
      readonly lag: () => Promise<{
        readonly unconfirmed: number
        readonly oldestAt: number | null
      }>
      readonly reanchored: () => number
      /** Wei of this gateway's relayer, and of each relayer that has unconfirmed anchors. */
      readonly balances: () => Promise<ReadonlyMap<string, bigint>>
    }
  }
  readonly nodes: {
    status(): {
      readonly serving: number
      readonly runs: number
      readonly slotsInUse: number
      readonly queued: number
    }
    countStates(): ReadonlyMap<string, number>
  }
  readonly enclaves: {
    /** The enclaves in use. `attestation`: standard base64. */
    identities(): readonly {
      readonly attestation: string
      readonly log: { readonly size: number; readonly acknowledged: number }
    }[]
    countStates(): ReadonlyMap<string, number>
    /** False while the newest list of accepted releases cannot be used. */
    areReleasesCurrent(): boolean
  }
  /** Seconds since the newest evidence of each attested provider. */
  readonly providers: { readonly ages: () => Promise<ReadonlyMap<string, number>> }
  /** Null when there are no other gateways. */
  readonly bus: {
    status(): {
      readonly isUp: boolean
      readonly peers: number
      readonly channels: number
      /** Refused messages, counted by reason. */
      readonly refused: ReadonlyMap<string, number>
    }
  } | null
  /** Null when another program writes the log's lines. */
  readonly lines: (() => { readonly dropped: number; readonly waitingBytes: number }) | null
  /**
   * At SIGHUP, settings are read again. `reloadedAt`: the last success or the start, Unix seconds.
   */
  readonly settings: { status(): { readonly isReloaded: boolean; readonly reloadedAt: number } }
  readonly now: () => number
}

export function listSources(parts: MeasuredParts): readonly GaugeSource[] {
  return [
    connectionSource(parts),
    memorySource(parts),
    databaseSource(parts),
    commitSource(parts),
    chainSource(parts),
    anchorSource(parts),
    relayerSource(parts),
    nodeSource(parts),
    enclaveSource(parts),
    providerSource(parts),
    busSource(parts),
    logSource(parts),
    settingsSource(parts),
  ]
}

function connectionSource({ app }: MeasuredParts) {
  return source({
    name: 'connections',
    gauges: {
      connections: { help: 'Open connections of the API, those of nodes included' },
      connections_silent: { help: 'Those of them that have sent no whole head of a request yet' },
      connections_max: { help: 'Connections beyond which new ones are closed at once' },
    },
    read: async () => {
      const { open, silent, max } = await app.server.load()
      return { connections: open, connections_silent: silent, connections_max: max }
    },
  })
}

function memorySource({ app }: MeasuredParts) {
  return source({
    name: 'memory',
    gauges: {
      admitted_bytes: { help: 'Memory that the bodies and answers of calls take, as estimated' },
      admitted_bytes_max: { help: 'Memory beyond which calls are refused as overloaded' },
    },
    read: () => {
      const { bytes, bytesMax } = app.memory()
      return { admitted_bytes: bytes, admitted_bytes_max: bytesMax }
    },
  })
}

/** Shorter than SOURCE_TIMEOUT_MS, so that a slow database counts as down. */
const DATABASE_TIMEOUT_MS = 1_500

function databaseSource({ database }: MeasuredParts) {
  const ask = singleFlight(database)
  return source({
    name: 'database',
    gauges: {
      database_up: { help: '1 when the database answers a query within 1.5 s' },
    },
    read: async () => {
      const timeout = Promise.withResolvers<number>()
      const timer = setTimeout(() => timeout.resolve(0), DATABASE_TIMEOUT_MS)
      const answer = ask().then(
        () => 1,
        () => 0,
      )
      const up = await Promise.race([answer, timeout.promise]).finally(() => clearTimeout(timer))
      return { database_up: up }
    },
  })
}

function commitSource({ commits }: MeasuredParts) {
  return source({
    name: 'committer',
    gauges: {
      commits_failing_seconds: { help: 'How long nothing could be committed; 0 while all is well' },
      commits_refused: {
        help: '1 when the log and the database contradict each other: an operator is needed',
      },
      commit_failures_total: { help: 'Commits that failed and were tried again, since the start' },
      commit_waiting_calls: { help: 'Callers that wait for a commit' },
      log_committed_leaves: { help: 'Size of the log in the database' },
    },
    read: () => {
      const { phase, failingForMs, failures, waiting, size } = commits.worst()
      return {
        commits_failing_seconds: failingForMs / 1000,
        commits_refused: phase === 'refusing' ? 1 : 0,
        commit_failures_total: failures,
        commit_waiting_calls: waiting,
        log_committed_leaves: size,
      }
    },
  })
}

function chainSource({ anchoring }: MeasuredParts) {
  return source({
    name: 'broadcaster',
    gauges: {
      chain_failing: { help: '1 while anchors do not reach the chain' },
      anchor_store_failing: { help: '1 while anchors cannot be read or marked in the database' },
      chain_block_number: { help: 'Newest block that was seen' },
      anchors_pending: { help: 'Pending anchors: in no block yet' },
      anchors_reverted_total: { help: 'Anchors that failed on the chain, since the start' },
      anchors_taken_total: {
        help: 'Anchors whose nonce another transaction used, since the start',
      },
      anchors_made_again_total: {
        help: 'Anchors made in the place of one whose nonce was used, since the start',
      },
      anchor_blocks_unreadable: {
        help: 'Blocks with anchors that this gateway cannot read, so that evidence has no block',
      },
    },
    read: () => {
      const { fault, isChainFailing, blockNumber, pendingCount, revertedCount, takenCount } =
        anchoring.status()
      return {
        chain_failing: isChainFailing ? 1 : 0,
        anchor_store_failing: fault?.code === 'store_failed' ? 1 : 0,
        chain_block_number: blockNumber,
        anchors_pending: pendingCount,
        anchors_reverted_total: revertedCount,
        anchors_taken_total: takenCount,
        anchors_made_again_total: anchoring.figures.reanchored(),
        anchor_blocks_unreadable: anchoring.unreadableBlocks().count,
      }
    },
  })
}

function anchorSource({ anchoring, now }: MeasuredParts) {
  return source({
    name: 'anchors',
    gauges: {
      anchors_unconfirmed: {
        help: 'Anchors without enough confirmations, those in no block included',
      },
      anchor_lag_seconds: { help: 'Age of the oldest of them; 0 for none' },
    },
    read: async () => {
      const { unconfirmed, oldestAt } = await anchoring.figures.lag()
      const ageSeconds = oldestAt === null ? 0 : Math.max(0, now() / 1000 - oldestAt)
      return { anchors_unconfirmed: unconfirmed, anchor_lag_seconds: ageSeconds }
    },
  })
}

function relayerSource({ anchoring }: MeasuredParts) {
  return source({
    name: 'relayer',
    gauges: {
      relayer_balance_ether: {
        help: 'What each relayer with anchors on their way has left to pay them with, rounded to a double',
        label: 'relayer',
      },
    },
    read: async () => ({
      relayer_balance_ether: new Map(
        [...(await anchoring.figures.balances())].map(([of, wei]) => [of, Number(wei) / 1e18]),
      ),
    }),
  })
}

function nodeSource({ nodes }: MeasuredParts) {
  return source({
    name: 'nodes',
    gauges: {
      nodes: { help: 'Connected nodes by state', label: 'state' },
      nodes_serving: { help: 'Connected nodes that are given work' },
      node_runs: { help: 'Calls on nodes that are not over' },
      node_slots_in_use: { help: 'Slots of nodes that are taken' },
      node_queue: { help: 'Callers that wait for a node' },
    },
    read: () => {
      const { serving, runs, slotsInUse, queued } = nodes.status()
      return {
        nodes: nodes.countStates(),
        nodes_serving: serving,
        node_runs: runs,
        node_slots_in_use: slotsInUse,
        node_queue: queued,
      }
    },
  })
}

function enclaveSource({ enclaves, now }: MeasuredParts) {
  return source({
    name: 'enclaves',
    gauges: {
      enclaves: { help: 'Enclaves by state', label: 'state' },
      attestation_age_seconds: {
        help: 'Age of the oldest current attestation document of an enclave in use',
      },
      enclave_log_leaves: { help: 'Sizes of the logs of the enclaves in use together' },
      enclave_log_pending: {
        help: 'Leaves that they keep because their commit is not acknowledged',
      },
    },
    read: () => {
      const inUse = enclaves.identities()
      const logs = inUse.map(({ log }) => log)
      const ages = inUse.map(({ attestation }) => now() - madeAt(attestation))
      return {
        enclaves: enclaves.countStates(),
        attestation_age_seconds: ages.length === 0 ? null : Math.max(...ages) / 1000,
        enclave_log_leaves: sum(logs.map(({ size }) => size)),
        enclave_log_pending: sum(logs.map(({ size, acknowledged }) => size - acknowledged)),
      }
    },
  })
}

function providerSource({ providers }: MeasuredParts) {
  return source({
    name: 'providers',
    gauges: {
      provider_evidence_age_seconds: {
        help: 'Age of the newest evidence of each attested provider; without evidence, time since the start',
        label: 'provider',
      },
    },
    read: async () => ({ provider_evidence_age_seconds: await providers.ages() }),
  })
}

const NO_BUS = { isUp: null, peers: null, channels: null, refused: null } as const

function busSource({ bus }: MeasuredParts) {
  return source({
    name: 'bus',
    gauges: {
      bus_up: { help: '1 while the bus to the other gateways is connected; none without NATS_URL' },
      bus_peers: { help: 'Other gateways that were seen lately' },
      bus_channels: { help: 'Calls under way from and to other gateways' },
      bus_messages_refused_total: {
        help: 'Messages on the bus that no gateway of this service sealed, or that came again',
      },
    },
    read: () => {
      const { isUp, peers, channels, refused } = bus?.status() ?? NO_BUS
      return {
        bus_up: isUp === null ? null : Number(isUp),
        bus_peers: peers,
        bus_channels: channels,
        bus_messages_refused_total:
          refused === null ? null : [...refused.values()].reduce((sum, count) => sum + count, 0),
      }
    },
  })
}

function logSource({ lines }: MeasuredParts) {
  return source({
    name: 'log',
    gauges: {
      log_lines_dropped_total: {
        help: 'Log lines that no reader and no disk took in time, since the start',
      },
      log_waiting_bytes: { help: 'Bytes of log lines that wait to be written' },
    },
    read: () => {
      const { dropped, waitingBytes } = lines?.() ?? { dropped: null, waitingBytes: null }
      return { log_lines_dropped_total: dropped, log_waiting_bytes: waitingBytes }
    },
  })
}

function settingsSource({ settings, enclaves }: MeasuredParts) {
  return source({
    name: 'settings',
    gauges: {
      config_last_reload_successful: {
        help: '1 when the last reload by SIGHUP, or the start, took its settings into use, and the list of accepted releases is the newest; 0 when they are older ones, because a file was at fault',
      },
      config_last_reload_success_timestamp_seconds: {
        help: 'Unix time at which settings were last taken into use',
      },
    },
    read: () => {
      const { isReloaded, reloadedAt } = settings.status()
      return {
        config_last_reload_successful: Number(isReloaded && enclaves.areReleasesCurrent()),
        config_last_reload_success_timestamp_seconds: reloadedAt,
      }
    },
  })
}

function madeAt(document: string): number {
  return decodeAttestationPayload(decodeBase64(document)).timestampMs
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

/** Lets the compiler check that the source reads exactly the values that it registers. */
function source<Name extends string>(described: GaugeSource<Name>): GaugeSource<Name> {
  return described
}
