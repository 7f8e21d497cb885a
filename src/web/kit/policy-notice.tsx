import { summaryOf } from './policy.ts'
import { clearPolicy, refuseDevelopment, usePolicy } from './tab-policy.ts'

/** Says whose policy a page uses, with a button to stop using it. */
export function PolicyNotice({
  isRevocationUsed = true,
  isUnderVerdict = false,
}: {
  /** True if this page uses revocation lists. */
  readonly isRevocationUsed?: boolean
  /**
   * True if this notice is under a verdict. The verdict explains what a development root proves.
   */
  readonly isUnderVerdict?: boolean
}) {
  const box = isUnderVerdict ? 'under-verdict' : 'notice'
  const { inForce, place, isLinked, isKept, development, isDevelopmentRefused } = usePolicy()
  switch (inForce.kind) {
    case 'development':
      return (
        <div class={`${box} warn expecting`} data-policy="development">
          {isUnderVerdict ? (
            <p>Checked by the policy that this development gateway gives for itself.</p>
          ) : (
            <p>
              <strong>Development gateway:</strong> this page uses the policy of this gateway. It
              proves nothing to other people.
            </p>
          )}
          <p>
            <button type="button" class="small" onClick={() => refuseDevelopment(true)}>
              Do not use it
            </button>
          </p>
        </div>
      )
    case 'own':
      return (
        <div class={`${box} expecting`} data-policy="own">
          <p>
            <strong>Your policy holds on all pages of this tab:</strong>{' '}
            {summaryOf(inForce.policy).join(', ')}. You{' '}
            {isLinked ? 'accepted it from a link, or changed it,' : 'gave it'} on {place}.
            {!isKept &&
              ' It is too large to be kept, or a file cannot be read, so it ends when you leave this page.'}
            {!isRevocationUsed && inForce.policy.revocationLists.length > 0 && (
              <> This page does not use revocation lists, so revocation is not checked here.</>
            )}
          </p>
          <p>
            <button type="button" class="small" onClick={clearPolicy}>
              Clear<span class="hidden-text"> your policy</span>
            </button>
          </p>
        </div>
      )
    case 'none':
      if (development === null || !isDevelopmentRefused) return null
      return (
        <div class={`${box} expecting`} data-policy="refused">
          <p>You do not use the policy that this development gateway gives for itself.</p>
          <p>
            <button type="button" class="small" onClick={() => refuseDevelopment(false)}>
              Use it
            </button>
          </p>
        </div>
      )
  }
}
