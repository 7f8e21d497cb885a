import { OutsideText } from '../kit/outside-text.tsx'
import { Scrolling } from '../kit/scrolling.tsx'
import { CopyButton } from '../kit/values.tsx'

/** Characters. A proof has about ten thousand, mostly of the attestation document. */
const SHOWN_MAX = 50_000

/** `label` names the code and its copy button. */
export function CodeBlock({ label, text }: { readonly label: string; readonly text: string }) {
  return (
    <div class="code-block">
      <Scrolling label={label}>
        <pre>
          <OutsideText text={text} shownMax={SHOWN_MAX} />
        </pre>
      </Scrolling>
      <CopyButton text={text} what={label} />
    </div>
  )
}
