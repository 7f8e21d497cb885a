import { useMemo, useState } from 'preact/hooks'
import type { UsageReply } from '../../accounts/usage-routes.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { type Loaded, useLoaded } from '../kit/use-loaded.ts'
import { Count } from '../kit/values.tsx'
import { Chart, type ChartData, SpanSelect } from './chart.tsx'
import { useSession } from './session.ts'
import { type Column, Table } from './table.tsx'

const HOUR_SECONDS = 3_600
const DAY_SECONDS = 86_400

/** The first span is chosen at the start. */
const SPANS = [
  { name: '30 days, by day', per: 'day', seconds: 30 * DAY_SECONDS },
  { name: '7 days, by hour', per: 'hour', seconds: 7 * DAY_SECONDS },
  { name: '24 hours, by hour', per: 'hour', seconds: DAY_SECONDS },
] as const
type Span = (typeof SPANS)[number]

const EVERY_MS = 60_000

/** Shows money if the service has prices. */
export function UsageReport() {
  const [span, setSpan] = useState<Span>(SPANS[0])
  const sums = useUsage(span, 'operation')
  // The gateway refuses this request if there are too many models. The request is separate, so that
  // the page can still show the sums.
  const models = useUsage(span, 'operation,model')
  const [requests, tokens, money] = useMemo(
    () => (['requests', 'tokens', 'money'] as const).map((member) => sumUp(sums.value, member)),
    [sums.value],
  )
  const isUtc = sums.value?.per === 'day'
  return (
    <>
      <div class="heading-row">
        <h2>Usage by model</h2>
        <SpanSelect id="usage-span" spans={SPANS} span={span} onSpan={setSpan} />
      </div>
      {models.fault !== null && <FaultNotice fault={models.fault} onRetry={models.reload} />}
      {models.value === null && models.fault === null && <Busy what="Asking for the usage…" />}
      <Table
        label="Usage by model"
        columns={MODEL_COLUMNS}
        rows={models.value === null ? null : modelUses(models.value)}
        keyOf={({ operation, model }) => `${operation} ${model}`}
        empty="Nothing was used."
      />
      <h2>Usage over time</h2>
      {sums.fault !== null && <FaultNotice fault={sums.fault} onRetry={sums.reload} />}
      <div class="charts">
        <Chart
          title="Requests"
          shape="bars"
          unit="requests"
          data={requests ?? null}
          isUtc={isUtc}
        />
        <Chart title="Tokens" shape="bars" unit="tokens" data={tokens ?? null} isUtc={isUtc} />
        {sums.value !== null && sums.value.money !== null && (
          <Chart title="Money" shape="bars" unit="spent" data={money ?? null} isUtc={isUtc} />
        )}
      </div>
    </>
  )
}

function useUsage(span: Span, by: string): Loaded<UsageReply> {
  const session = useSession()
  return useLoaded(
    (signal) => {
      const period = secondsOf(span.per)
      const until = (Math.floor(Date.now() / 1000 / period) + 1) * period
      const query = `per=${span.per}&since=${until - span.seconds}&until=${until}&by=${by}`
      return session.ask<UsageReply>(`/v1/dashboard/usage?${query}`, { signal })
    },
    [session, span, by],
    { everyMs: EVERY_MS },
  )
}

type ModelUse = {
  readonly operation: string
  /** Empty for an operation without a model, `*` for a sum over models, null if unknown. */
  readonly model: string | null
  readonly requests: number
  readonly tokens: number
  /** Null when the requests had no price. */
  readonly money: number | null
  readonly unpriced: number
}

/** Most used model first. */
function modelUses({ usage }: UsageReply): readonly ModelUse[] {
  const uses = new Map<string, ModelUse>()
  for (const { operation = '', model = null, ...one } of usage) {
    const name = `${operation} ${model}`
    const before = uses.get(name)
    const cost = one.money === null ? null : Number(one.money)
    uses.set(name, {
      operation,
      model,
      requests: one.requests + (before?.requests ?? 0),
      tokens: one.tokens + (before?.tokens ?? 0),
      money: cost === null ? (before?.money ?? null) : cost + (before?.money ?? 0),
      unpriced: one.unpriced_requests + (before?.unpriced ?? 0),
    })
  }
  return [...uses.values()].toSorted((one, other) => other.requests - one.requests)
}

const MODEL_COLUMNS: readonly Column<ModelUse>[] = [
  { title: 'Model', kind: 'name', cell: ({ model }) => <ModelName model={model} /> },
  { title: 'Operation', cell: ({ operation }) => operation },
  { title: 'Requests', kind: 'number', cell: ({ requests }) => <Count value={requests} /> },
  { title: 'Tokens', kind: 'number', cell: ({ tokens }) => <Count value={tokens} /> },
  { title: 'Cost', kind: 'number', cell: (use) => <Cost {...use} /> },
]

function ModelName({ model }: Pick<ModelUse, 'model'>) {
  if (model === null) return <span class="faint">not known</span>
  if (model === '') return <span class="faint">no model</span>
  if (model === '*') return <span class="faint">other models</span>
  return <OutsideText text={model} isOneLine={true} shownMax={100} />
}

function Cost({ money, unpriced }: Pick<ModelUse, 'money' | 'unpriced'>) {
  if (money === null) return <span class="faint">no price</span>
  return (
    <>
      <Count value={money} />
      {unpriced > 0 && (
        <span class="faint">
          {' '}
          + <Count value={unpriced} /> without a price
        </span>
      )}
    </>
  )
}

/** Includes periods without usage. */
function sumUp(
  usage: UsageReply | null,
  member: 'requests' | 'tokens' | 'money',
): ChartData | null {
  if (usage === null) return null
  const sums = new Map<number, number>()
  for (let time = usage.since; time < usage.until; time += secondsOf(usage.per)) sums.set(time, 0)
  for (const one of usage.usage)
    sums.set(one.start, (sums.get(one.start) ?? 0) + Number(one[member]))
  return { times: [...sums.keys()], values: [...sums.values()] }
}

function secondsOf(per: UsageReply['per']): number {
  return per === 'day' ? DAY_SECONDS : HOUR_SECONDS
}
