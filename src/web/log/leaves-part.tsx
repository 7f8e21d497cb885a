import { FaultNotice } from '../kit/notices.tsx'
import { Scrolling } from '../kit/scrolling.tsx'
import { findCompletion } from '../kit/seen-completions.ts'
import { shortenHex } from '../kit/shorten-hex.ts'
import { tabKey } from '../kit/tab-key.ts'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count, Hex, Time } from '../kit/values.tsx'
import {
  type Head,
  type HeadPage,
  type LeafRange,
  readHeadsAbove,
  readLeaves,
  readOwnLeaves,
} from './answers.ts'
import { HeadAnchorLabel } from './heads-table.tsx'
import { type RowPlace, useArrival, usePageOf } from './place.ts'

const LEAVES_SHOWN = 10

type Leaf = {
  readonly index: number
  readonly hash: string
  /** The first head that covers the leaf, or null when the gateway returns no such head. */
  readonly head: Head | null
  /**
   * Hash of the completion. Known only if this tab's key may read the completion, or if this tab
   * opened the completion's page.
   */
  readonly completion: string | null
}

type LeafPage = {
  readonly leaves: readonly Leaf[]
  /** Why the page shows no completions although this tab has a key. Otherwise null. */
  readonly keyFault: unknown
}

/** Newest first, with links to head and completion. */
export function LeavesPart({
  notary,
  newest,
  place,
}: {
  readonly notary: string
  readonly newest: HeadPage
  /** The row that the address names. */
  readonly place: RowPlace | null
}) {
  const size = newest.heads[0]?.size ?? 0
  const wanted = place?.kind === 'leaf' ? place.index : null
  const [page, turnTo] = usePageOf(place, wanted === null ? null : endOfPage(wanted, size))
  const range = rangeBefore(page ?? size, size)
  const states = newest.heads.map(({ size, anchor }) => `${size} ${anchor.state}`).join()
  const { value, fault, reload } = useLoaded(
    (signal) => readPage(notary, range, signal),
    [notary, range.start, range.end, states],
  )
  return (
    <>
      <h2 id="leaves">Leaves</h2>
      <p>
        Each leaf is the hash of an answer's receipt. The public log does not name the answers. A
        leaf has a link when the API key of this tab may read its answer, or when this tab opened
        the page of the answer.
      </p>
      {wanted !== null && wanted >= size && (
        <p class="notice warn" role="alert">
          This log has no leaf <Count value={wanted} /> yet. It has <Count value={size} />, from 0.
        </p>
      )}
      <LeavesTable leaves={value?.leaves ?? []} place={place} />
      <p class="row">
        <button type="button" disabled={range.end === size} onClick={() => turnTo(null)}>
          Newest leaves
        </button>
        <button type="button" disabled={range.start === 0} onClick={() => turnTo(range.start)}>
          Older leaves
        </button>
        <span class="faint">
          {size === 0 ? (
            'The first verified answer is leaf 0.'
          ) : (
            <>
              <Count value={range.start} /> to <Count value={range.end - 1} /> of{' '}
              <Count value={size} />
            </>
          )}
        </span>
      </p>
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value !== null && value.keyFault !== null && <FaultNotice fault={value.keyFault} />}
    </>
  )
}

/**
 * Returns the end of the page that contains leaf `index`. The first page begins at the newest leaf.
 * Null when the log has no such leaf.
 */
function endOfPage(index: number, size: number): number | null {
  if (index >= size) return null
  return size - LEAVES_SHOWN * Math.floor((size - 1 - index) / LEAVES_SHOWN)
}

/** The page that ends before leaf `end`: a full page if the log has enough leaves. */
function rangeBefore(end: number, size: number): LeafRange {
  const start = Math.max(0, Math.min(end, size) - LEAVES_SHOWN)
  return { start, end: Math.min(size, start + LEAVES_SHOWN) }
}

async function readPage(notary: string, range: LeafRange, signal: AbortSignal): Promise<LeafPage> {
  if (range.end === 0) return { leaves: [], keyFault: null }
  const key = tabKey()
  const own = key === null ? [] : readOwnLeaves(notary, range, { key, signal })
  const [hashes, heads, [known]] = await Promise.all([
    readLeaves(notary, range, signal),
    readHeadsAbove(notary, { above: range.start, limit: LEAVES_SHOWN, signal }),
    Promise.allSettled([own]),
  ])
  const completions = new Map(
    known.status === 'fulfilled' ? known.value.map((leaf) => [leaf.hash, leaf.completion]) : [],
  )
  const leaves = hashes.map((hash, at): Leaf => {
    const index = range.start + at
    return {
      index,
      hash,
      head: heads.find((head) => head.size > index) ?? null,
      completion: completions.get(hash) ?? findCompletion({ notary, index }),
    }
  })
  return {
    leaves: leaves.toReversed(),
    keyFault: known.status === 'rejected' ? known.reason : null,
  }
}

function LeavesTable({
  leaves,
  place,
}: {
  readonly leaves: readonly Leaf[]
  readonly place: RowPlace | null
}) {
  const wanted = place?.kind === 'leaf' ? place.index : null
  const row = useArrival(
    place,
    leaves.some(({ index }) => index === wanted),
  )
  return (
    <Scrolling label="Leaves, newest first" layout="rows-place">
      <table class="rows leaves">
        <thead>
          <tr>
            <th scope="col">Leaf</th>
            <th scope="col">Answer</th>
            <th scope="col">Anchor</th>
            <th scope="col">First head</th>
            <th scope="col">Hash of the receipt</th>
            <th scope="col">Committed</th>
          </tr>
        </thead>
        <tbody>
          {leaves.map((leaf, at) => {
            const isHere = leaf.index === wanted
            return (
              // The key is the row's position, so that rows do not move when a new leaf comes.
              <tr
                key={at}
                id={`leaf-${leaf.index}`}
                tabIndex={-1}
                ref={isHere ? row : null}
                aria-current={isHere ? 'true' : undefined}
              >
                <LeafCells leaf={leaf} />
              </tr>
            )
          })}
        </tbody>
      </table>
    </Scrolling>
  )
}

function LeafCells({ leaf: { index, hash, head, completion } }: { readonly leaf: Leaf }) {
  return (
    <>
      <th scope="row">
        <a href={`#leaf-${index}`}>
          <Count value={index} />
        </a>
      </th>
      <td>
        {completion === null ? (
          <span class="faint">not public</span>
        ) : (
          <a class="hex" href={`/c/${completion}`} title={completion}>
            {shortenHex(completion, 12)}
          </a>
        )}
      </td>
      <td>{head === null ? <None /> : <HeadAnchorLabel state={head.anchor.state} />}</td>
      <td>
        {head === null ? (
          <None />
        ) : (
          <a href={`#head-${head.size}`}>
            <Count value={head.size} /> {head.size === 1 ? 'leaf' : 'leaves'}
          </a>
        )}
      </td>
      <td>
        <Hex value={hash} digits={12} />
      </td>
      <td>{head === null ? <None /> : <Time ms={1_000 * head.created_at} />}</td>
    </>
  )
}

function None() {
  return <span class="faint">no head</span>
}
