import type { ComponentChildren } from 'preact'
import { State } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'

type VerdictName = 'verified' | 'consistent' | 'invalid'

const WORDS: Readonly<Record<VerdictName, string>> = {
  verified: 'Verified',
  consistent: 'Consistent',
  invalid: 'Invalid',
}
const TONES = { verified: 'good', consistent: 'warn', invalid: 'bad' } as const

/** What it comes to, in a word, a sentence for anybody, and a line for whoever works with it. */
export function Verdict({
  verdict,
  headline,
  sentence,
  children,
}: {
  readonly verdict: VerdictName
  readonly headline?: string
  readonly sentence: string
  readonly children?: ComponentChildren
}) {
  return (
    <div class={`notice verdict ${TONES[verdict]}`} data-verdict={verdict}>
      <p>
        <State tone={TONES[verdict]}>{WORDS[verdict]}</State>
      </p>
      <p class="sentence">{sentence}</p>
      {headline !== undefined && <p>{headline}</p>}
      {children}
    </div>
  )
}

/** Why nothing was checked, and what to do. */
export function Refused({
  outcome,
}: {
  readonly outcome: { readonly message: string; readonly advice: string }
}) {
  return (
    <div class="notice bad" role="alert" data-verdict="refused">
      <p>
        <strong>This was not checked.</strong>
      </p>
      <p>
        <OutsideText text={outcome.message} isOneLine={true} shownMax={600} />
      </p>
      <p>{outcome.advice}</p>
    </div>
  )
}
