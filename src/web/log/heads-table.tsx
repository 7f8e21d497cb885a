import { useRef } from 'preact/hooks'
import { attempt } from '#attestation/finding.ts'
import { type BlockExplorer, BlockLink, TransactionLink } from '../kit/block-explorer.tsx'
import { State, type Tone } from '../kit/notices.tsx'
import { Scrolling } from '../kit/scrolling.tsx'
import { Count, Hex, Time } from '../kit/values.tsx'
import { type DescribedLog, domainOf, type Head } from './answers.ts'
import { openHead } from './check-log.ts'
import { type RowPlace, useArrival } from './place.ts'

/**
 * The tones of states that the gateway reports. The page does not check these states on a chain.
 */
const TONES: Readonly<Record<Head['anchor']['state'], Tone>> = {
  pending: 'open',
  mined: 'open',
  confirmed: 'good',
  reverted: 'bad',
}

export function HeadAnchorLabel({ state }: { readonly state: Head['anchor']['state'] }) {
  return <State tone={TONES[state]}>{state}</State>
}

/**
 * The table has space for a full page. When a new head comes, no row moves: each row shows the next
 * newer head.
 */
export function HeadsTable({
  log,
  heads,
  place,
  explorer,
}: {
  readonly log: DescribedLog
  readonly heads: readonly Head[]
  /** The row that the address names. */
  readonly place: RowPlace | null
  readonly explorer: BlockExplorer
}) {
  const isSigned = useSignatureCheck(log)
  const wanted = place?.kind === 'head' ? place.size : null
  const row = useArrival(
    place,
    heads.some(({ size }) => size === wanted),
  )
  return (
    <Scrolling label="Heads, newest first" layout="rows-place">
      <table class="heads rows">
        <thead>
          <tr>
            <th scope="col">Leaves</th>
            <th scope="col">Root</th>
            <th scope="col">Signature</th>
            <th scope="col">Anchor</th>
            <th scope="col">Block</th>
            <th scope="col">Transaction</th>
            <th scope="col">Newest leaf</th>
            <th scope="col">Committed</th>
          </tr>
        </thead>
        <tbody>
          {heads.map((head, at) => (
            // The key is the row's position, so that rows do not move when a new head comes.
            <tr
              key={at}
              id={`head-${head.size}`}
              tabIndex={-1}
              ref={head.size === wanted ? row : null}
              aria-current={head.size === wanted ? 'true' : undefined}
            >
              <HeadCells head={head} isSigned={isSigned} explorer={explorer} />
            </tr>
          ))}
        </tbody>
      </table>
    </Scrolling>
  )
}

function HeadCells({
  head,
  isSigned,
  explorer,
}: {
  readonly head: Head
  readonly isSigned: (head: Head) => boolean
  readonly explorer: BlockExplorer
}) {
  const { anchor, size } = head
  return (
    <>
      <th scope="row">
        <a href={`#head-${size}`}>
          <Count value={size} />
        </a>
      </th>
      <td>
        <Hex value={head.root} digits={8} />
      </td>
      <td>{isSigned(head) ? <State tone="good">holds</State> : <State tone="bad">fails</State>}</td>
      <td>
        <HeadAnchorLabel state={anchor.state} />
      </td>
      <td>
        {anchor.block_number === null ? (
          <span class="faint">none yet</span>
        ) : (
          <BlockLink number={anchor.block_number} explorer={explorer} />
        )}
      </td>
      <td>
        <TransactionLink hash={anchor.tx_hash} explorer={explorer} />
      </td>
      <td>
        {size > 0 && (
          <a href={`#leaf-${size - 1}`}>
            leaf <Count value={size - 1} />
          </a>
        )}
      </td>
      <td>
        <Time ms={1_000 * head.created_at} />
      </td>
    </>
  )
}

/** Checks each head only once, because the page reads the list every few seconds. */
function useSignatureCheck(log: DescribedLog): (head: Head) => boolean {
  const known = useRef(new Map<string, boolean>())
  return (head) => {
    const { notary, chain_id, contract } = log
    const name = [notary, chain_id, contract, head.size, head.root, head.signature].join()
    const before = known.current.get(name)
    if (before !== undefined) return before
    const holds = 'value' in attempt(() => openHead({ notary, domain: domainOf(log) }, head))
    if (known.current.size >= KNOWN_MAX) known.current.clear()
    known.current.set(name, holds)
    return holds
  }
}

const KNOWN_MAX = 500
