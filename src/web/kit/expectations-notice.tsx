import { summaryOf } from './expectations.ts'
import { clearExpectations, refuseDevelopment, useExpectations } from './tab-expectations.ts'

/** Says whose expectations a page uses, with a button to stop using them. */
export function ExpectationsNotice({
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
  const { inForce, place, isLinked, isKept, development, isDevelopmentRefused } = useExpectations()
  switch (inForce.kind) {
    case 'development':
      return (
        <div class={`${box} warn expecting`} data-expectations="development">
          {isUnderVerdict ? (
            <p>Checked by the expectations that this development gateway gives of itself.</p>
          ) : (
            <p>
              <strong>Development gateway:</strong> this page uses the expectations of this gateway.
              They prove nothing to other people.
            </p>
          )}
          <p>
            <button type="button" class="small" onClick={() => refuseDevelopment(true)}>
              Do not use them
            </button>
          </p>
        </div>
      )
    case 'own':
      return (
        <div class={`${box} expecting`} data-expectations="own">
          <p>
            <strong>Your expectations hold on all pages of this tab:</strong>{' '}
            {summaryOf(inForce.expectations).join(', ')}. You{' '}
            {isLinked ? 'accepted them from a link, or changed them,' : 'gave them'} on {place}.
            {!isKept &&
              ' They are too large to be kept, or a file cannot be read, so they end when you leave this page.'}
            {!isRevocationUsed && inForce.expectations.revocationLists.length > 0 && (
              <> This page does not use revocation lists, so revocation is not checked here.</>
            )}
          </p>
          <p>
            <button type="button" class="small" onClick={clearExpectations}>
              Clear<span class="hidden-text"> your expectations</span>
            </button>
          </p>
        </div>
      )
    case 'none':
      if (development === null || !isDevelopmentRefused) return null
      return (
        <div class={`${box} expecting`} data-expectations="refused">
          <p>You do not use the expectations that this development gateway gives of itself.</p>
          <p>
            <button type="button" class="small" onClick={() => refuseDevelopment(false)}>
              Use them
            </button>
          </p>
        </div>
      )
  }
}
