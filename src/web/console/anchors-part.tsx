import type { RelayerDescription } from '../../api/control-operations.ts'
import type { WaitingAnchorsReply, WaitingStatusReply } from '../../verified/waiting-replies.ts'
import { Busy, FaultNotice, State, type Tone } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count, Hex, Time } from '../kit/values.tsx'
import { useSession } from './session.ts'
import { Table } from './table.tsx'

const EVERY_MS = 5_000

/** For the operator: what waits to be committed or anchored, why, and who pays. */
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
      {value === null && fault === null && <Busy what="Asking for waiting anchors…" />}
      <div class="waiting">{value !== null && <Waiting {...value.status} />}</div>
      <h2>Relayers</h2>
      <Table
        label="Relayers"
        columns={[
          ...['Account', 'Balance', 'Waiting', 'Unconfirmed', 'Oldest'],
          ...['Next nonce', 'On the chain'],
        ]}
        isLoaded={value !== null}
        empty={value?.relayers.length === 0 ? 'There are no relayers.' : null}
      >
        {value?.relayers.map((relayer) => (
          <RelayerRow key={relayer.address} {...relayer} />
        ))}
      </Table>
      <h2>Anchors that are not confirmed</h2>
      <Table
        label="Anchors that are not confirmed"
        columns={['Made', 'State', 'Transaction', 'Log', 'Size', 'Nonce', 'Made again']}
        isLoaded={value !== null}
        empty={value?.anchors.length === 0 ? 'All anchors are confirmed.' : null}
      >
        {value?.anchors.map((anchor) => (
          <tr key={anchor.tx_hash}>
            <td>
              <Time ms={anchor.created_at * 1000} />
            </td>
            <td class="steady">
              <State tone={ANCHOR_STATES[anchor.state][0]}>{ANCHOR_STATES[anchor.state][1]}</State>
              {anchor.block_number !== null && ` block ${anchor.block_number}`}
            </td>
            <td>
              <Hex value={anchor.tx_hash} />
            </td>
            <td>
              <Hex value={anchor.notary} />
            </td>
            <td>
              <Count value={anchor.size} />
            </td>
            <td>
              <Count value={anchor.nonce} />
            </td>
            <td>
              <Count value={anchor.replaced} />
            </td>
          </tr>
        ))}
      </Table>
    </>
  )
}

const ANCHOR_STATES: Readonly<
  Record<WaitingAnchorsReply['anchors'][number]['state'], readonly [Tone, string]>
> = {
  pending: ['open', 'in no block'],
  mined: ['good', 'young'],
  taken: ['warn', 'nonce was taken'],
}

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
          <Count value={anchors.waiting} /> in no block, <Count value={anchors.unconfirmed} /> not
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

function RelayerRow({
  address,
  current,
  next_nonce: nextNonce,
  waiting,
  unconfirmed,
  oldest_at: oldestAt,
  balance_wei: balanceWei,
  chain_nonce: chainNonce,
  fault,
}: RelayerDescription) {
  return (
    <tr>
      <th scope="row">
        <Hex value={address} /> {current && <State tone="good">pays now</State>}
        <Why fault={fault === '' ? null : fault} />
      </th>
      <td>{balanceWei === null ? <span class="faint">not known</span> : etherText(balanceWei)}</td>
      <td>
        <Count value={waiting} />
      </td>
      <td>
        <Count value={unconfirmed} />
      </td>
      <td>{oldestAt === null ? '–' : <Time ms={oldestAt * 1000} />}</td>
      <td>{nextNonce === null ? '–' : <Count value={nextNonce} />}</td>
      <td>{chainNonce === null ? '–' : <Count value={chainNonce} />}</td>
    </tr>
  )
}

const WEI_DIGITS = 18
const SHOWN_DIGITS = 6

/** Decimal wei as ether, to a millionth. */
function etherText(wei: string): string {
  const digits = wei.padStart(WEI_DIGITS + 1, '0')
  const whole = digits.slice(0, -WEI_DIGITS)
  return `${BigInt(whole).toLocaleString('en')}.${digits.slice(-WEI_DIGITS).slice(0, SHOWN_DIGITS)} ETH`
}
