import type { Check } from '../../../attestation/finding.ts'
import { State, type Tone } from './notices.tsx'
import { OutsideText } from './outside-text.tsx'

/** How the outcome of a check is shown. */
export const TONE_OF: Readonly<Record<Check<string>['outcome'], Tone>> = {
  passed: 'good',
  failed: 'bad',
  'not checked': 'open',
}

/**
 * What was checked, each with its outcome and what was found; `explain` says of a check what its
 * outcome shows.
 */
export function CheckList({
  checks,
  explain,
}: {
  readonly checks: readonly Check<string>[]
  readonly explain?: (check: Check<string>) => string
}) {
  return (
    <ul class="checks">
      {checks.map((check) => (
        <li key={check.name} data-check={check.name} data-outcome={check.outcome}>
          <State tone={TONE_OF[check.outcome]}>{check.outcome}</State>
          <div>
            <strong>{check.name}</strong> {explain !== undefined && <p>{explain(check)}</p>}
            <span class="faint">
              <OutsideText text={check.detail} shownMax={500} />
            </span>
          </div>
        </li>
      ))}
    </ul>
  )
}
