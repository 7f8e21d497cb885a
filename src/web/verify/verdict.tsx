import type { ComponentChildren } from 'preact'
import type { Conclusion } from '#attestation/report/conclude.ts'
import { OTHER_ROOT } from '#attestation/report/unknown-root.ts'
import { OutsideText } from '../kit/outside-text.tsx'

type Standing = Conclusion['standing']

const WORDS: Readonly<Record<Standing, string>> = {
  verified: 'VERIFIED',
  consistent: 'CONSISTENT',
  undetermined: 'NOT DETERMINED',
  invalid: 'INVALID',
}
const TONES = {
  verified: 'good',
  consistent: 'warn',
  undetermined: 'warn',
  invalid: 'bad',
} as const satisfies Record<Standing, string>
const SIGNS = { good: '✓', warn: '!', bad: '✗' } as const

/** The heading above a result. This heading gets the focus. */
export const RESULT_ID = 'result'

/**
 * A sentence that every reader can understand, with `headline` for engineers. If a development
 * enclave signed the evidence, the verdict is never green.
 */
export function Verdict({
  standing,
  isDevelopment = false,
  sentence,
  headline,
  children,
}: {
  readonly standing: Standing
  readonly isDevelopment?: boolean
  readonly sentence: string
  readonly headline?: string
  readonly children?: ComponentChildren
}) {
  const isMarked = isDevelopment && TONES[standing] !== 'bad'
  const tone = isMarked ? 'warn' : TONES[standing]
  return (
    <div class={`verdict ${tone}`} data-verdict={standing}>
      <h1 id={RESULT_ID} tabIndex={-1}>
        <span aria-hidden="true">{SIGNS[TONES[standing]]} </span>
        {WORDS[standing]}
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
