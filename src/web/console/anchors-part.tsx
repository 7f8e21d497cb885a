import type { RelayerDescription } from '../../chain/relayer-acts.ts'
import type {
  WaitingAnchorsReply,
  WaitingStatusReply,
} from '../../verified/calls/waiting-replies.ts'
import { Busy, FaultNotice, State, type Tone } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count, Hex, Time } from '../kit/values.tsx'
import { AnchorStateLabel } from './anchor-state.tsx'
import { NotaryLink } from './notary-link.tsx'
import { useSession } from './session.ts'
import { ShortTime } from './short-time.tsx'
import { type Column, Table } from './table.tsx'

const EVERY_MS = 5_000

export function AnchorsPart() {
  const session = useSession()
  const { value, fault, reload } = useLoaded(
    async (signal) => {
      const [status, relayers, anchors] = await Promise.all([
        session.ask<WaitingStatusReply>('/v1/admin/status', { signal }),
        session.ask<{ readonly relayers: readonly RelayerDescription[] }>('/v1/admin/relayers', {
          signal,
        }),
        session.ask<WaitingAnchorsReply>('/v1/admin/anchors', { signal }),
      ])
      return { status, ...relayers, ...anchors }
    },
    [session],
    { everyMs: EVERY_MS },
  )
  return (
    <>
      <h1 tabIndex={-1}>Anchors</h1>
      <p>
        Answers are sent when they are committed to the database. Their anchors on the chain follow
        later.
      </p>
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value === null && fault === null && <Busy what="Asking for pending anchors…" />}
      <div class="waiting">{value !== null && <Waiting {...value.status} />}</div>
      <h2>Relayers</h2>
      <Table
        label="Relayers"
        columns={RELAYER_COLUMNS}
        rows={value === null ? null : value.relayers}
        keyOf={({ address }) => address}
        empty="There are no relayers."
      />
      <h2>Anchors that are not confirmed</h2>
      <Table
        label="Anchors that are not confirmed"
        columns={ANCHOR_COLUMNS}
        rows={value === null ? null : value.anchors}
        keyOf={({ tx_hash: hash }) => hash}
        empty={
          <>
            <AnchorStateLabel state="confirmed" /> There are no other anchors.
          </>
        }
      />
    </>
  )
}

type WaitingAnchor = WaitingAnchorsReply['anchors'][number]

const ANCHOR_COLUMNS: readonly Column<WaitingAnchor>[] = [
  { title: 'Transaction', kind: 'name', cell: ({ tx_hash: hash }) => <Hex value={hash} /> },
  {
    title: 'State',
    isSteady: true,
    cell: ({ state, block_number: block }) => <AnchorStateLabel state={state} block={block} />,
  },
  { title: 'Made', cell: ({ created_at: at }) => <ShortTime seconds={at} /> },
  { title: 'Log', cell: ({ notary }) => <NotaryLink notary={notary} /> },
  { title: 'Size', kind: 'number', cell: ({ size }) => <Count value={size} /> },
  { title: 'Nonce', kind: 'number', cell: ({ nonce }) => <Count value={nonce} /> },
  { title: 'Made again', kind: 'number', cell: ({ replaced }) => <Count value={replaced} /> },
]

function Waiting({ commits, anchors }: WaitingStatusReply) {
  return (
    <div class="cards">
      <section class="card">
        <h2>Commits</h2>
        <p>
          <State tone={COMMIT_TONES[commits.state]}>{commits.state}</State>{' '}
          <Count value={commits.waiting_calls} /> calls wait
          {commits.failing_seconds > 0 && `, for ${Math.round(commits.failing_seconds)} s it fails`}
          .
        </p>
        <Why fault={commits.fault} />
      </section>
      <section class="card">
        <h2>Anchors</h2>
        <p>
          <State tone={ANCHORING_TONES[anchors.state]}>{anchors.state}</State>{' '}
          <Count value={anchors.pending} /> pending, <Count value={anchors.unconfirmed} /> not
          confirmed
          {anchors.oldest_at !== null && (
            <>
              , the oldest of <Time ms={anchors.oldest_at * 1000} />
            </>
          )}
          .
        </p>
        <Why fault={anchors.fault} />
      </section>
      <section class="card">
        <h2>Chain</h2>
        <p>
          {anchors.chain === 'ok' ? (
            <State tone="good">answers</State>
          ) : (
            <State tone="bad">does not answer</State>
          )}
        </p>
      </section>
    </div>
  )
}

const COMMIT_TONES: Readonly<Record<WaitingStatusReply['commits']['state'], Tone>> = {
  following: 'good',
  opening: 'open',
  stopped: 'open',
  failing: 'warn',
  refusing: 'bad',
}

const ANCHORING_TONES: Readonly<Record<WaitingStatusReply['anchors']['state'], Tone>> = {
  idle: 'good',
  working: 'good',
  stopped: 'open',
  failing: 'bad',
}

function Why({ fault }: { readonly fault: string | null }) {
  if (fault === null) return null
  return (
    <p class="fault-line">
      <OutsideText text={fault} isOneLine={true} shownMax={500} />
    </p>
  )
}

const RELAYER_COLUMNS: readonly Column<RelayerDescription>[] = [
  {
    title: 'Account',
    kind: 'name',
    cell: ({ address, current, fault }) => (
      <>
        <Hex value={address} /> {current && <State tone="good">pays now</State>}
        <Why fault={fault === '' ? null : fault} />
      </>
    ),
  },
  {
    title: 'Balance',
    kind: 'number',
    cell: ({ balance_wei: wei }) =>
      wei === null ? <span class="faint">not known</span> : etherText(wei),
  },
  { title: 'Pending', kind: 'number', cell: ({ pending }) => <Count value={pending} /> },
  {
    title: 'Unconfirmed',
    kind: 'number',
    cell: ({ unconfirmed }) => <Count value={unconfirmed} />,
  },
  {
    title: 'Oldest',
    cell: ({ oldest_at: at }) => (at === null ? '–' : <ShortTime seconds={at} />),
  },
  {
    title: 'Next nonce',
    kind: 'number',
    cell: ({ next_nonce: nonce }) => (nonce === null ? '–' : <Count value={nonce} />),
  },
  {
    title: 'On the chain',
    kind: 'number',
    cell: ({ chain_nonce: nonce }) => (nonce === null ? '–' : <Count value={nonce} />),
  },
]

const WEI_DIGITS = 18
const SHOWN_DIGITS = 6

/** Converts wei (decimal) to ether, with six decimals. */
function etherText(wei: string): string {
  const digits = wei.padStart(WEI_DIGITS + 1, '0')
  const whole = digits.slice(0, -WEI_DIGITS)
  return `${BigInt(whole).toLocaleString('en')}.${digits.slice(-WEI_DIGITS).slice(0, SHOWN_DIGITS)} ETH`
}
