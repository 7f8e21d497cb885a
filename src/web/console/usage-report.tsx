import { useMemo, useState } from 'preact/hooks'
import type { UsageReply } from '../../accounts/usage-routes.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count } from '../kit/values.tsx'
import { Chart, type ChartData, SpanSelect } from './chart.tsx'
import { useSession } from './session.ts'
import { Table } from './table.tsx'

const HOUR_SECONDS = 3_600
const DAY_SECONDS = 86_400

/** How far back, by which periods; the first is shown at first. */
const SPANS = [
  { name: '30 days, by day', per: 'day', seconds: 30 * DAY_SECONDS },
  { name: '7 days, by hour', per: 'hour', seconds: 7 * DAY_SECONDS },
  { name: '24 hours, by hour', per: 'hour', seconds: DAY_SECONDS },
] as const

const EVERY_MS = 60_000

/** What the account used over time, and of which models; money where the service has prices. */
export function UsageCharts() {
  const session = useSession()
  const [span, setSpan] = useState<(typeof SPANS)[number]>(SPANS[0])
  const { value, fault, reload } = useLoaded(
    (signal) => {
      const period = secondsOf(span.per)
      const until = (Math.floor(Date.now() / 1000 / period) + 1) * period
      const query = `per=${span.per}&since=${until - span.seconds}&until=${until}`
      return session.ask<UsageReply>(`/v1/dashboard/usage?${query}`, { signal })
    },
    [session, span],
    { everyMs: EVERY_MS },
  )
  const [requests, tokens, money] = useMemo(
    () => (['requests', 'tokens', 'money'] as const).map((member) => sumUp(value, member)),
    [value],
  )
  const isUtc = value?.per === 'day'
  return (
    <>
      <h2>Usage</h2>
      <SpanSelect id="usage-span" spans={SPANS} span={span} onSpan={setSpan} />
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value === null && fault === null && <Busy what="Asking for the usage…" />}
      <div class="charts">
        <Chart
          title="Requests"
          shape="bars"
          unit="requests"
          data={requests ?? null}
          isUtc={isUtc}
        />
        <Chart title="Tokens" shape="bars" unit="tokens" data={tokens ?? null} isUtc={isUtc} />
        {hasMoney(value) && (
          <Chart title="Money" shape="bars" unit="spent" data={money ?? null} isUtc={isUtc} />
        )}
      </div>
      <h3>By model</h3>
      <ModelTable usage={value} />
    </>
  )
}

/** What one operation used of one family of models. */
type ModelUse = {
  readonly operation: string | undefined
  readonly family: string
  readonly requests: number
  readonly tokens: number
  readonly money: number
}

function hasMoney(usage: UsageReply | null): boolean {
  return usage !== null && usage.money !== null
}

function ModelTable({ usage }: { readonly usage: UsageReply | null }) {
  const models = new Map<string, ModelUse>()
  for (const one of usage?.usage ?? []) {
    const name = `${one.operation} ${one.model_family}`
    const before = models.get(name) ?? { requests: 0, tokens: 0, money: 0 }
    models.set(name, {
      ...{ operation: one.operation, family: one.model_family ?? '' },
      requests: before.requests + one.requests,
      tokens: before.tokens + one.tokens,
      money: before.money + Number(one.money),
    })
  }
  const rows = [...models].toSorted(([, one], [, other]) => other.requests - one.requests)
  return (
    <Table
      label="By model"
      columns={['Operation', 'Models', 'Requests', 'Tokens', ...(hasMoney(usage) ? ['Money'] : [])]}
      isLoaded={usage !== null}
      empty={rows.length === 0 ? 'Nothing was used.' : null}
    >
      {rows.map(([name, { operation, family, requests, tokens, money }]) => (
        <tr key={name}>
          <th scope="row">{operation}</th>
          <td>
            <OutsideText text={family} isOneLine={true} shownMax={100} />
          </td>
          <td>
            <Count value={requests} />
          </td>
          <td>
            <Count value={tokens} />
          </td>
          {hasMoney(usage) && (
            <td>
              <Count value={money} />
            </td>
          )}
        </tr>
      ))}
    </Table>
  )
}

/** Every period of an answer, those in which nothing was used as well. */
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
