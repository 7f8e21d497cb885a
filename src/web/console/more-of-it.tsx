import { Busy, FaultNotice } from '../kit/notices.tsx'
import type { usePages } from './use-pages.ts'

/** What stands below pages of a list: that more come, why they do not, or the button for them. */
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
