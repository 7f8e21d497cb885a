import { useMemo, useState } from 'preact/hooks'
import type {
  NodeHistoryReply,
  NodeListReply,
  NodeStatsReply,
} from '../../nodes/protocol/registration.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count } from '../kit/values.tsx'
import { Chart, type ChartData, SpanSelect } from './chart.tsx'
import { useSession } from './session.ts'
import { ShortTime } from './short-time.tsx'
import { type Column, Table } from './table.tsx'

export type Node = NodeListReply['nodes'][number]

/** A node changes by itself, so it is read repeatedly. */
const EVERY_MS = 3_000

export function NodeDetails({ node }: { readonly node: Node }) {
  const session = useSession()
  const { value, fault, reload } = useLoaded(
    (signal) =>
      session.ask<NodeStatsReply>(`/v1/node/stats?node_id=${encodeURIComponent(node.node_id)}`, {
        signal,
      }),
    [session, node.node_id],
    { everyMs: EVERY_MS },
  )
  const firstToken = value?.average_time_to_first_token ?? null
  return (
    <section class="card node-details" aria-labelledby="node-heading">
      <h2 id="node-heading">
        <OutsideText text={node.name_alias} isOneLine={true} shownMax={100} />
      </h2>
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      <dl class="facts">
        <Fact name="Machine" value={machineOf(node)} />
        <Fact name="System" value={node.operating_system} />
        <Fact name="Agent" value={node.version} />
        <Fact name="Benchmark of" value={value?.benchmark_model_name ?? null} />
        <Fact
          name="First token after"
          value={firstToken === null ? null : `${firstToken.toFixed(2)} s on average`}
        />
        <Fact name="Total time online" value={lengthOf(node.total_uptime_seconds ?? 0)} />
      </dl>
      <h3>Models</h3>
      <Table
        label="Models of the node"
        columns={MODEL_COLUMNS}
        rows={node.models}
        keyOf={({ model_name: name }) => name}
        empty="The node serves no models now."
        isSmall={true}
      />
      <NodeCharts nodeId={node.node_id} />
      <h3>Latest requests</h3>
      <Table
        label="Latest requests"
        columns={INFERENCE_COLUMNS}
        rows={value === null ? null : value.completed_inferences}
        keyOf={({ created_at: at }, place) => `${at} ${place}`}
        empty="There are no requests yet."
      />
    </section>
  )
}

const MODEL_COLUMNS: readonly Column<Node['models'][number]>[] = [
  {
    title: 'Model',
    kind: 'name',
    cell: ({ model_name: name }) => <OutsideText text={name} isOneLine={true} shownMax={100} />,
  },
  {
    title: 'Speed, measured by the node itself',
    kind: 'number',
    cell: ({ tokens_per_second: speed }) => (speed === null ? 'not measured' : speedLabel(speed)),
  },
]

const INFERENCE_COLUMNS: readonly Column<NodeStatsReply['completed_inferences'][number]>[] = [
  { title: 'When', cell: ({ created_at: at }) => <ShortTime seconds={at} to="second" /> },
  {
    title: 'Model',
    cell: ({ model_name: name }) => <OutsideText text={name} isOneLine={true} shownMax={100} />,
  },
  { title: 'Tokens in', kind: 'number', cell: ({ prompt_tokens: sum }) => <Count value={sum} /> },
  {
    title: 'Tokens out',
    kind: 'number',
    cell: ({ completion_tokens: sum }) => <Count value={sum} />,
  },
]

/** Null when the fact is unknown. */
function Fact({ name, value }: { readonly name: string; readonly value: string | null }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value === null ? (
          <span class="faint">not known</span>
        ) : (
          <OutsideText text={value} isOneLine={true} shownMax={200} />
        )}
      </dd>
    </div>
  )
}

/** What the agent claims about its machine, without proof. */
function machineOf(node: Node): string | null {
  if (node.cpu_model === null) return null
  const gpu = node.gpu_model === null ? [] : [`${node.gpu_count ?? 1} × ${node.gpu_model}`]
  const memory = node.ram === null ? [] : [`${Math.round(node.ram / 1024)} GiB`]
  return [...gpu, node.cpu_model, ...memory].join(', ')
}

const LENGTHS = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
] as const

/** Shows one decimal below 100 tokens/s, otherwise whole numbers. */
export function speedLabel(tokensPerSecond: number): string {
  const maximumFractionDigits = tokensPerSecond < 100 ? 1 : 0
  return `${tokensPerSecond.toLocaleString('en', { maximumFractionDigits })} tokens/s`
}

/** A duration in seconds as `2 d 3 h`, `5 min` or `under a minute`, and zero as `–`. */
export function lengthOf(seconds: number): string {
  if (seconds === 0) return '–'
  const parts: string[] = []
  let left = seconds
  for (const [unit, length] of LENGTHS) {
    const count = Math.floor(left / length)
    left -= count * length
    if (count > 0) parts.push(`${count} ${unit}`)
  }
  return parts.length === 0 ? 'under a minute' : parts.slice(0, 2).join(' ')
}

const HOUR_SECONDS = 3_600
const SPANS = [
  { name: '24 hours', hours: 24 },
  { name: '7 days', hours: 7 * 24 },
  { name: '30 days', hours: 30 * 24 },
] as const
const CHARTS_EVERY_MS = 60_000

function NodeCharts({ nodeId }: { readonly nodeId: string }) {
  const session = useSession()
  const [span, setSpan] = useState<(typeof SPANS)[number]>(SPANS[0])
  const { value, fault, reload } = useLoaded(
    (signal) =>
      session.ask<NodeHistoryReply>(
        `/v1/node/stats/history?node_id=${encodeURIComponent(nodeId)}&hours=${span.hours}`,
        { signal },
      ),
    [session, nodeId, span],
    { everyMs: CHARTS_EVERY_MS },
  )
  const [requests, firstTokens] = useMemo(
    () => [
      hoursOf(value, span.hours, (hour) => hour?.requests ?? 0),
      hoursOf(value, span.hours, (hour) => hour?.time_to_first_token?.p50 ?? null),
    ],
    [value],
  )
  return (
    <>
      <h3>Over time</h3>
      <SpanSelect id="node-span" spans={SPANS} span={span} onSpan={setSpan} />
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value === null && fault === null && <Busy what="Asking for the requests…" />}
      <div class="charts">
        <Chart title="Requests by hour" shape="bars" unit="requests" data={requests} />
        <Chart title="First token after (median)" shape="line" unit="seconds" data={firstTokens} />
      </div>
    </>
  )
}

/** Includes hours without calls. */
function hoursOf(
  history: NodeHistoryReply | null,
  count: number,
  read: (hour: NodeHistoryReply['hours'][number] | undefined) => number | null,
): ChartData | null {
  if (history === null) return null
  const { since, hours } = history
  const byStart = new Map(hours.map((hour) => [hour.start, hour]))
  const last = Math.max(since + (count - 1) * HOUR_SECONDS, hours.at(-1)?.start ?? 0)
  const times: number[] = []
  for (let time = since; time <= last; time += HOUR_SECONDS) times.push(time)
  return { times, values: times.map((time) => read(byStart.get(time))) }
}
