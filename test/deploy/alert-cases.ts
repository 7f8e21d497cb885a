type Series = readonly [series: string, values: string]

/** When one alert fires, and for whom: `bad` has what it is about, `good` the same without. */
export type AlertCase = {
  readonly alert: string
  readonly bad: readonly Series[]
  readonly good: readonly Series[]
  /** What the alert says besides the labels of its rule. */
  readonly labels: Readonly<Record<string, string>>
  /** Still silent, though the fault is there. */
  readonly silentAt: string
  readonly firesAt: string
}

const BAD = { job: 'affidavit', instance: 'bad:9464' }
const JOB = { job: 'affidavit' }

const textOf = (labels: Readonly<Record<string, string>>) =>
  Object.entries(labels)
    .map(([name, value]) => `${name}="${value}"`)
    .join(', ')

/** A series of the faulty gateway, or with `good` of another one. */
const of = (name: string, values: string, more: Readonly<Record<string, string>> = {}): Series => [
  `${name}{${textOf({ ...BAD, ...more })}}`,
  values,
]

const fine = (name: string, values: string, more: Readonly<Record<string, string>> = {}): Series =>
  of(name, values, { instance: 'good:9464', ...more })

/** The last time at which an alert is silent, and a time at which it fires, as minutes and seconds. */
type Times = readonly [silentAt: string, firesAt: string]
const AFTER_5_MIN: Times = ['6m30s', '7m30s']
const AFTER_2_MIN: Times = ['3m45s', '4m15s']
const AFTER_1_MIN: Times = ['2m45s', '3m15s']
const AFTER_30_S: Times = ['2m15s', '2m45s']
const AT_ONCE: Times = ['1m45s', '2m15s']

/** One gauge that is wrong from 2 min on, and stays so. */
function gauge(
  alert: string,
  [metric, good, bad]: readonly [metric: string, good: number, bad: number],
  [silentAt, firesAt]: Times,
  {
    more = {},
    labels = { ...BAD, ...more },
  }: Partial<Record<'more' | 'labels', Readonly<Record<string, string>>>> = {},
): AlertCase {
  return {
    alert,
    bad: [of(metric, `${good}x7 ${bad}x120`, more)],
    good: [fine(metric, `${good}x128`, more)],
    labels,
    silentAt,
    firesAt,
  }
}

/** A counter that rises once, at 2 min. */
function event(alert: string, metric: string): AlertCase {
  return {
    alert,
    bad: [of(metric, '0x7 1x120')],
    good: [fine(metric, '3x128')],
    labels: BAD,
    silentAt: '1m45s',
    firesAt: '2m30s',
  }
}

/** Two gauges, of which one is nearly as large as the other. */
function share(alert: string, [part, whole]: readonly [string, string]): AlertCase {
  return {
    alert,
    bad: [of(part, '10x7 95x120'), of(whole, '100x128')],
    good: [fine(part, '70x128'), fine(whole, '100x128')],
    labels: BAD,
    silentAt: '6m30s',
    firesAt: '7m30s',
  }
}

/** Calls of two jobs, each on counters that rise every 15 s. */
function calls(
  alert: string,
  { wrong, right }: Readonly<Record<'wrong' | 'right', Readonly<Record<string, string>>>>,
): AlertCase {
  const name = 'affidavit_calls_total'
  const other = { job: 'affidavit-other' }
  return {
    alert,
    bad: [of(name, '0+6x128', wrong), of(name, '0+94x128', right)],
    good: [
      fine(name, '0+4x128', { ...other, ...wrong }),
      fine(name, '0+96x128', { ...other, ...right }),
    ],
    labels: JOB,
    silentAt: '4m45s',
    firesAt: '5m45s',
  }
}

/** A case of each alert of deploy/prometheus/rules.yml. */
export const ALERT_CASES: readonly AlertCase[] = [
  gauge('AffidavitDown', ['up', 1, 0], AFTER_1_MIN),
  calls('AffidavitErrors', {
    wrong: { status: '503', end: 'whole' },
    right: { status: '200', end: 'whole' },
  }),
  calls('AffidavitBrokenStreams', {
    wrong: { status: '200', end: 'error' },
    right: { status: '200', end: 'whole' },
  }),
  gauge('AffidavitSourceUnreadable', ['affidavit_source_up', 1, 0], AFTER_5_MIN, {
    more: { source: 'relayer' },
  }),
  gauge('AffidavitEventLoopSlow', ['nodejs_eventloop_lag_p99_seconds', 0.1, 0.9], AFTER_5_MIN),
  share('AffidavitMemoryAdmittedHigh', [
    'affidavit_admitted_bytes',
    'affidavit_admitted_bytes_max',
  ]),
  share('AffidavitConnectionsHigh', ['affidavit_connections', 'affidavit_connections_max']),
  share('AffidavitDescriptorsHigh', ['process_open_fds', 'process_max_fds']),
  event('AffidavitLogLinesDropped', 'affidavit_log_lines_dropped_total'),
  gauge('AffidavitStaging', ['affidavit_staging', 0, 1], AT_ONCE),
  gauge('AffidavitDatabaseDown', ['affidavit_database_up', 1, 0], AFTER_30_S),
  gauge('AffidavitCommitsFailing', ['affidavit_commits_failing_seconds', 10, 40], AFTER_30_S),
  gauge('AffidavitCommitsRefused', ['affidavit_commits_refused', 0, 1], AT_ONCE),
  {
    alert: 'AffidavitCommitsSlow',
    bad: [
      of('affidavit_commit_duration_seconds_bucket', '0+90x128', { le: '1' }),
      of('affidavit_commit_duration_seconds_bucket', '0+90x128', { le: '5' }),
      of('affidavit_commit_duration_seconds_bucket', '0+100x128', { le: '10' }),
      of('affidavit_commit_duration_seconds_bucket', '0+100x128', { le: '+Inf' }),
    ],
    good: ['1', '5', '10', '+Inf'].map((le) =>
      fine('affidavit_commit_duration_seconds_bucket', '0+100x128', { job: 'affidavit-other', le }),
    ),
    labels: JOB,
    silentAt: '9m45s',
    firesAt: '11m',
  },
  gauge('AffidavitNoEnclave', ['affidavit_enclaves', 2, 0], AFTER_30_S, {
    more: { state: 'usable' },
    labels: BAD,
  }),
  gauge('AffidavitEnclaveLost', ['affidavit_enclaves', 0, 1], AFTER_2_MIN, {
    more: { state: 'refused' },
  }),
  gauge('AffidavitAttestationOld', ['affidavit_attestation_age_seconds', 3700, 7300], AFTER_5_MIN),
  {
    alert: 'AffidavitProviderEvidenceOld',
    bad: [of('affidavit_provider_evidence_age_seconds', '100x7 86401x120', { provider: 'tee' })],
    good: [fine('affidavit_provider_evidence_age_seconds', '86399x128', { provider: 'other' })],
    labels: { ...JOB, provider: 'tee' },
    silentAt: '6m30s',
    firesAt: '7m30s',
  },
  {
    // The series begins with the first change.
    alert: 'AffidavitProviderKeyChanged',
    bad: [of('affidavit_provider_key_changes_total', '_x8 1x120', { provider: 'tee' })],
    good: [fine('affidavit_provider_key_changes_total', '0x128', { provider: 'other' })],
    labels: { ...JOB, provider: 'tee' },
    silentAt: '1m30s',
    firesAt: '2m30s',
  },
  {
    alert: 'AffidavitChainFailing',
    bad: [of('affidavit_chain_failing', '0x7 1x120')],
    good: [fine('affidavit_chain_failing', '0x128', { job: 'affidavit-other' })],
    labels: JOB,
    silentAt: '6m30s',
    firesAt: '7m30s',
  },
  {
    alert: 'AffidavitAnchorLag',
    bad: [of('affidavit_anchor_lag_seconds', '100x7 1000x120')],
    good: [fine('affidavit_anchor_lag_seconds', '800x128', { job: 'affidavit-other' })],
    labels: JOB,
    silentAt: '6m30s',
    firesAt: '7m30s',
  },
  gauge('AffidavitAnchorStoreFailing', ['affidavit_anchor_store_failing', 0, 1], AFTER_2_MIN),
  event('AffidavitAnchorsReverted', 'affidavit_anchors_reverted_total'),
  event('AffidavitNonceTaken', 'affidavit_anchors_taken_total'),
  {
    alert: 'AffidavitRelayerBalanceLow',
    bad: [of('affidavit_relayer_balance_ether', '2x7 0.2x120', { relayer: '0xaa' })],
    good: [fine('affidavit_relayer_balance_ether', '0.4x128', { relayer: '0xbb' })],
    labels: { ...JOB, relayer: '0xaa' },
    silentAt: '6m30s',
    firesAt: '7m30s',
  },
  gauge('AffidavitReloadFailed', ['affidavit_config_last_reload_successful', 1, 0], AFTER_1_MIN),
  gauge('AffidavitBusDown', ['affidavit_bus_up', 1, 0], AFTER_1_MIN),
  gauge('AffidavitBlocksUnreadable', ['affidavit_anchor_blocks_unreadable', 0, 1], AFTER_5_MIN),
  event('AffidavitBusStranger', 'affidavit_bus_messages_refused_total'),
  {
    alert: 'AffidavitNodeQueueLong',
    bad: [
      of('affidavit_node_queue', '6x7 6x120'),
      of('affidavit_node_queue', '0x7 6x120', { instance: 'b:1' }),
    ],
    good: [fine('affidavit_node_queue', '9x128', { job: 'affidavit-other' })],
    labels: JOB,
    silentAt: '6m30s',
    firesAt: '7m30s',
  },
]
