import type { Check } from '#attestation/finding.ts'
import { State, type Tone } from './notices.tsx'
import { OutsideText } from './outside-text.tsx'

export const TONE_OF: Readonly<Record<Check<string>['outcome'], Tone>> = {
  passed: 'good',
  failed: 'bad',
  'not checked': 'open',
}

/** `word` is the outcome, and `about` says what the outcome means. */
export type CheckView = {
  readonly tone: Tone
  readonly word: string
  readonly about: string
}

export function CheckList({
  checks,
  view,
}: {
  readonly checks: readonly Check<string>[]
  readonly view?: (check: Check<string>) => CheckView
}) {
  return (
    <ul class="checks">
      {checks.map((check) => {
        const { tone, word, about } = view?.(check) ?? plainView(check)
        return (
          <li key={check.name} data-check={check.name} data-outcome={check.outcome}>
            <State tone={tone}>{word}</State>
            <div>
              <strong>{check.name}</strong> {about !== '' && <p>{about}</p>}
              <span class="faint">
                <OutsideText text={check.detail} shownMax={500} />
              </span>
            </div>
          </li>
        )
      })}
    </ul>
  )
}

function plainView({ outcome }: Check<string>): CheckView {
  return { tone: TONE_OF[outcome], word: outcome, about: '' }
}
