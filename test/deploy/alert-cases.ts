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

/** One gauge that is wrong from 2 min on, and stays so. */
function gauge(
  alert: string,
  metric: string,
  {
    good,
    bad,
    silentAt,
    firesAt,
    more = {},
    labels = { ...BAD, ...more },
  }: {
    readonly good: string
    readonly bad: string
    readonly silentAt: string
    readonly firesAt: string
    readonly more?: Readonly<Record<string, string>>
    readonly labels?: Readonly<Record<string, string>>
  },
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
  gauge('AffidavitDown', 'up', { good: '1', bad: '0', silentAt: '2m45s', firesAt: '3m15s' }),
  calls('AffidavitErrors', {
    wrong: { status: '503', end: 'whole' },
    right: { status: '200', end: 'whole' },
  }),
  calls('AffidavitBrokenStreams', {
    wrong: { status: '200', end: 'error' },
    right: { status: '200', end: 'whole' },
  }),
  gauge('AffidavitSourceUnreadable', 'affidavit_source_up', {
    good: '1',
    bad: '0',
    silentAt: '6m30s',
    firesAt: '7m30s',
    more: { source: 'relayer' },
  }),
  gauge('AffidavitEventLoopSlow', 'nodejs_eventloop_lag_p99_seconds', {
    good: '0.1',
    bad: '0.9',
    silentAt: '6m30s',
    firesAt: '7m30s',
  }),
  share('AffidavitMemoryAdmittedHigh', [
    'affidavit_admitted_bytes',
    'affidavit_admitted_bytes_max',
  ]),
  share('AffidavitConnectionsHigh', ['affidavit_connections', 'affidavit_connections_max']),
  share('AffidavitDescriptorsHigh', ['process_open_fds', 'process_max_fds']),
  event('AffidavitLogLinesDropped', 'affidavit_log_lines_dropped_total'),
  gauge('AffidavitStaging', 'affidavit_staging', {
    good: '0',
    bad: '1',
    silentAt: '1m45s',
    firesAt: '2m15s',
  }),
  gauge('AffidavitDatabaseDown', 'affidavit_database_up', {
    good: '1',
    bad: '0',
    silentAt: '2m15s',
    firesAt: '2m45s',
  }),
  gauge('AffidavitCommitsFailing', 'affidavit_commits_failing_seconds', {
    good: '10',
    bad: '40',
    silentAt: '2m15s',
    firesAt: '2m45s',
  }),
  gauge('AffidavitCommitsRefused', 'affidavit_commits_refused', {
    good: '0',
    bad: '1',
    silentAt: '1m45s',
    firesAt: '2m15s',
  }),
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
  gauge('AffidavitNoEnclave', 'affidavit_enclaves', {
    good: '2',
    bad: '0',
    silentAt: '2m15s',
    firesAt: '2m45s',
    more: { state: 'usable' },
    labels: BAD,
  }),
  gauge('AffidavitEnclaveLost', 'affidavit_enclaves', {
    good: '0',
    bad: '1',
    silentAt: '3m45s',
    firesAt: '4m15s',
    more: { state: 'refused' },
  }),
  gauge('AffidavitAttestationOld', 'affidavit_attestation_age_seconds', {
    good: '3700',
    bad: '7300',
    silentAt: '6m30s',
    firesAt: '7m30s',
  }),
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
  gauge('AffidavitAnchorStoreFailing', 'affidavit_anchor_store_failing', {
    good: '0',
    bad: '1',
    silentAt: '3m45s',
    firesAt: '4m15s',
  }),
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
  gauge('AffidavitReloadFailed', 'affidavit_config_last_reload_successful', {
    good: '1',
    bad: '0',
    silentAt: '2m45s',
    firesAt: '3m15s',
  }),
  gauge('AffidavitBusDown', 'affidavit_bus_up', {
    good: '1',
    bad: '0',
    silentAt: '2m45s',
    firesAt: '3m15s',
  }),
  gauge('AffidavitBlocksUnreadable', 'affidavit_anchor_blocks_unreadable', {
    good: '0',
    bad: '1',
    silentAt: '6m30s',
    firesAt: '7m30s',
  }),
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
