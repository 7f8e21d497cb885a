import { useRef } from 'preact/hooks'
import { attempt } from '../../../attestation/finding.ts'
import { type BlockExplorer, BlockLink, TransactionLink } from '../kit/block-explorer.tsx'
import { State, type Tone } from '../kit/notices.tsx'
import { Count, Hex, Time } from '../kit/values.tsx'
import { domainOf, type Head, type Log } from './answers.ts'
import { openHead } from './check-log.ts'

/** None is good: nothing here asked a chain. */
const TONES: Readonly<Record<Head['anchor']['state'], Tone>> = {
  pending: 'open',
  mined: 'open',
  confirmed: 'open',
  reverted: 'bad',
}

/** How far an anchor is, as the gateway says. */
export function AnchorState({ state }: { readonly state: Head['anchor']['state'] }) {
  return <State tone={TONES[state]}>{state}</State>
}

/**
 * Heads of a log, in a place for as many as a page has: nothing moves when a head comes, the rows
 * take the next one's content.
 */
export function HeadsTable({
  log,
  heads,
  explorer,
}: {
  readonly log: Log
  readonly heads: readonly Head[]
  readonly explorer: BlockExplorer
}) {
  const isSigned = useSignatureCheck(log)
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keyboard.
    <section class="scroll heads-place" aria-label="Heads, newest first" tabIndex={0}>
      <table class="heads">
        <thead>
          <tr>
            <th scope="col" class="number">
              Leaves
            </th>
            <th scope="col">Root</th>
            <th scope="col">Signature</th>
            <th scope="col">Anchor</th>
            <th scope="col">Block</th>
            <th scope="col">Transaction</th>
            <th scope="col">Committed</th>
          </tr>
        </thead>
        <tbody>
          {heads.map((head, at) => (
            // The row of a place, whatever stands there: rows that moved would shift the page.
            <HeadRow key={at} head={head} isSigned={isSigned} explorer={explorer} />
          ))}
        </tbody>
      </table>
    </section>
  )
}

function HeadRow({
  head,
  isSigned,
  explorer,
}: {
  readonly head: Head
  readonly isSigned: (head: Head) => boolean
  readonly explorer: BlockExplorer
}) {
  const { anchor } = head
  return (
    <tr>
      <th scope="row" class="number">
        <Count value={head.size} />
      </th>
      <td>
        <Hex value={head.root} digits={8} />
      </td>
      <td>{isSigned(head) ? <State tone="good">holds</State> : <State tone="bad">fails</State>}</td>
      <td>
        <AnchorState state={anchor.state} />
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
        <Time ms={1_000 * head.created_at} />
      </td>
    </tr>
  )
}

/** Whether the notary signed a head. Each is checked once: the list is read every few seconds. */
function useSignatureCheck(log: Log): (head: Head) => boolean {
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
