import type { RateLimitsReply } from '../../accounts/rate-limit-routes.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count } from '../kit/values.tsx'
import { OwnBudgets } from './budgets.tsx'
import { askHolder, useSession } from './session.ts'
import { type Column, Table } from './table.tsx'
import { UsageReport } from './usage-report.tsx'

const LIMITS_PATH = '/v1/dashboard/rate-limits'
const EVERY_MS = 10_000

export function LimitsPart() {
  const session = useSession()
  const { value, fault, reload } = useLoaded(
    (signal) => session.ask<RateLimitsReply>(LIMITS_PATH, { signal }),
    [session],
    { everyMs: EVERY_MS },
  )
  const { value: holder } = useLoaded((signal) => askHolder(session.key, signal), [session], {
    everyMs: EVERY_MS,
  })
  return (
    <>
      <h1 tabIndex={-1}>Limits and usage</h1>
      <p class="line-place">
        {value !== null && (
          <>
            Tier <OutsideText text={value.usage_tier_name} isOneLine={true} shownMax={100} />:{' '}
            <OutsideText text={value.usage_tier_description} isOneLine={true} shownMax={400} />
          </>
        )}
      </p>
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value === null && fault === null && <Busy what="Asking for the limits…" />}
      <UsageReport />
      <h2>Limits</h2>
      <Table
        label="Limits"
        columns={COLUMNS}
        rows={value === null ? null : value.usages}
        keyOf={({ full_model: models }) => models}
        empty="There are no limits or counts for models."
      />
      <p class="faint">Days are in UTC. Calls beyond a limit get 429.</p>
      {holder !== null && <OwnBudgets budgets={holder.budgets} />}
    </>
  )
}

type Limit = RateLimitsReply['usages'][number]

const COLUMNS: readonly Column<Limit>[] = [
  {
    title: 'Models',
    kind: 'name',
    cell: ({ model }) => <OutsideText text={model} isOneLine={true} shownMax={100} />,
  },
  {
    title: 'Requests today',
    cell: (limit) => <Used used={limit.requests_used_day} of={limit.max_requests_per_day} />,
  },
  {
    title: 'Tokens today',
    cell: (limit) => <Used used={limit.tokens_used_day} of={limit.max_tokens_per_day} />,
  },
  {
    title: 'Requests a minute',
    kind: 'number',
    cell: ({ max_requests_per_minute: value }) => <Bound value={value} />,
  },
  {
    title: 'Tokens a minute',
    kind: 'number',
    cell: ({ max_tokens_per_minute: value }) => <Bound value={value} />,
  },
]

function Used({ used, of: max }: { readonly used: number; readonly of: number | null }) {
  if (max === null)
    return (
      <>
        <Count value={used} />, <span class="faint">no limit</span>
      </>
    )
  return (
    <>
      <Count value={used} /> of <Count value={max} />
      <meter
        aria-hidden="true"
        value={Math.min(used, max)}
        max={Math.max(max, 1)}
        high={0.9 * max}
      />
    </>
  )
}

function Bound({ value }: { readonly value: number | null }) {
  return value === null ? <span class="faint">no limit</span> : <Count value={value} />
}
