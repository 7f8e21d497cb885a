import type { ComponentChildren } from 'preact'
import type { Verdict } from '#attestation/evidence/verdict.ts'
import { OTHER_ROOT } from '#attestation/report/unknown-root.ts'
import { OutsideText } from '../kit/outside-text.tsx'

const WORDS: Readonly<Record<Verdict, string>> = {
  verified: 'VERIFIED',
  incomplete: 'INCOMPLETE',
  not_accepted: 'NOT ACCEPTED',
  invalid: 'INVALID',
}
const TONES = {
  verified: 'good',
  incomplete: 'warn',
  not_accepted: 'warn',
  invalid: 'bad',
} as const satisfies Record<Verdict, string>
const SIGNS = { good: '✓', warn: '!', bad: '✗' } as const

/** The heading above a result. This heading gets the focus. */
export const RESULT_ID = 'result'

/**
 * A sentence that every reader can understand, with `headline` for engineers. If a development
 * enclave signed the evidence, the verdict is never green.
 */
export function VerdictHeading({
  verdict,
  isDevelopment = false,
  sentence,
  headline,
  children,
}: {
  readonly verdict: Verdict
  readonly isDevelopment?: boolean
  readonly sentence: string
  readonly headline?: string
  readonly children?: ComponentChildren
}) {
  const isMarked = isDevelopment && TONES[verdict] !== 'bad'
  const tone = isMarked ? 'warn' : TONES[verdict]
  return (
    <div class={`verdict ${tone}`} data-verdict={verdict}>
      <h1 id={RESULT_ID} tabIndex={-1}>
        <span aria-hidden="true">{SIGNS[TONES[verdict]]} </span>
        {WORDS[verdict]}
        {isMarked && (
          <>
            {' '}
            <span class="kind">development</span>
          </>
        )}
      </h1>
      <p class="sentence">{sentence}</p>
      {isMarked && <p>{OTHER_ROOT}</p>}
      {children}
      {headline !== undefined && <p class="faint">{headline}</p>}
    </div>
  )
}

export function Refused({
  outcome,
}: {
  readonly outcome: { readonly message: string; readonly advice: string }
}) {
  return (
    <div class="verdict bad" role="alert" data-verdict="refused">
      <h1 id={RESULT_ID} tabIndex={-1}>
        <span aria-hidden="true">✗ </span>NOT CHECKED
      </h1>
      <p>
        <OutsideText text={outcome.message} isOneLine={true} shownMax={600} />
      </p>
      <p>{outcome.advice}</p>
    </div>
  )
}
