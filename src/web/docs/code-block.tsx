import { OutsideText } from '../kit/outside-text.tsx'
import { CopyButton } from '../kit/values.tsx'

/**
 * Maximum characters that are shown. A proof has about ten thousand, mostly of the attestation
 * document.
 */
const SHOWN_MAX = 50_000

/** Code with a button to copy it. `label` names code and button. Wide lines scroll. */
export function CodeBlock({ label, text }: { readonly label: string; readonly text: string }) {
  return (
    <div class="code-block">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must reach what scrolls. */}
      <section class="scroll" aria-label={label} tabIndex={0}>
        <pre>
          <OutsideText text={text} shownMax={SHOWN_MAX} />
        </pre>
      </section>
      <CopyButton text={text} what={label} />
    </div>
  )
}
