import { Busy, FaultNotice } from '../kit/notices.tsx'
import type { usePages } from './use-pages.ts'

/** The end of a list that is read page by page: a button for more, or why loading failed. */
export function MoreOfIt({
  of: { fault, isLoading, hasMore, loadMore },
  what,
}: {
  readonly of: Pick<ReturnType<typeof usePages>, 'fault' | 'isLoading' | 'hasMore' | 'loadMore'>
  readonly what: string
}) {
  return (
    <>
      {isLoading && <Busy what={`Asking for ${what}…`} />}
      {fault !== null && <FaultNotice fault={fault} onRetry={loadMore} />}
      {hasMore && fault === null && (
        <p>
          <button type="button" disabled={isLoading} onClick={loadMore}>
            Show older ones
          </button>
        </p>
      )}
    </>
  )
}
