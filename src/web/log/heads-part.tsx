import type { BlockExplorer } from '../kit/block-explorer.tsx'
import { FaultNotice } from '../kit/notices.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count } from '../kit/values.tsx'
import { type DescribedLog, type HeadPage, readHeads } from './answers.ts'
import { HeadsTable } from './heads-table.tsx'
import { type RowPlace, usePageOf } from './place.ts'

type HeadPages = ReturnType<typeof useHeadPages>

/**
 * Returns the page of heads to show: the newest page (updated live), the page with the head that
 * the address names, or the page that the reader chose.
 */
export function useHeadPages(notary: string, newest: HeadPage, place: RowPlace | null) {
  const wanted = place?.kind === 'head' ? place.size : null
  const isAmongNewest = newest.heads.some(({ size }) => size === wanted)
  const named = wanted === null || isAmongNewest ? null : wanted + 1
  const [below, turnTo] = usePageOf(place, named)
  const older = useLoaded(
    async (signal) => (below === null ? null : await readHeads(notary, { below, signal })),
    [notary, below],
  )
  const page = below === null ? newest : older.value
  return {
    below,
    turnTo,
    older,
    page: page ?? newest,
    /** The size of the head that the address names, if the log does not have this head. */
    missing:
      below !== null && below === named && page !== null && page.heads[0]?.size !== wanted
        ? wanted
        : null,
  }
}

export function HeadsPart({
  log,
  place,
  pages: { page, below, missing, older, turnTo },
  explorer,
}: {
  readonly log: DescribedLog
  readonly place: RowPlace | null
  readonly pages: HeadPages
  readonly explorer: BlockExplorer
}) {
  return (
    <>
      <h2 id="heads">Heads</h2>
      <p>
        Each head is the Merkle root of all leaves up to its size, signed by the notary. This page
        checks the signatures. It does not check the anchors: they are shown as the gateway reports
        them.
      </p>
      {missing !== null && (
        <p class="notice warn" role="alert">
          This log has no signed tree head of exactly <Count value={missing} /> leaves.
        </p>
      )}
      <HeadsTable log={log} heads={page.heads} place={place} explorer={explorer} />
      <p class="row">
        <button type="button" disabled={below === null} onClick={() => turnTo(null)}>
          Newest
        </button>
        <button type="button" disabled={page.cursor === null} onClick={() => turnTo(page.cursor)}>
          Older
        </button>
        {below !== null && (
          <span class="faint">These are older heads; the page still looks for new heads.</span>
        )}
      </p>
      {older.fault !== null && <FaultNotice fault={older.fault} onRetry={older.reload} />}
    </>
  )
}
