import { useState } from 'preact/hooks'
import { escapeControls } from '../../../attestation/report/printable.ts'

/** Number of characters shown at first. More would make a page slow, and hide what follows. */
export const SHOWN_LENGTH_MAX = 4_000

/**
 * Shows text from outside the page as plain text. Characters that control a terminal or the
 * direction of text become escapes. The number of marks on one character is limited. Line feeds and
 * tabs are kept. A long text is shown step by step, starting with its beginning. `isOneLine` also
 * escapes line feeds.
 */
export function OutsideText({
  text,
  isOneLine = false,
  shownMax = SHOWN_LENGTH_MAX,
}: {
  readonly text: string
  readonly isOneLine?: boolean
  readonly shownMax?: number
}) {
  const [shown, setShown] = useState(shownMax)
  const left = text.length - shown
  const part = text.slice(0, endOf(text, shown))
  return (
    <>
      <bdi class="outside">{isOneLine ? escapeLine(part) : escapeText(part)}</bdi>
      {left > 0 && (
        <>
          …{' '}
          <button type="button" onClick={() => setShown(shown + 10 * shownMax)}>
            Show more ({left.toLocaleString('en')} characters left)
          </button>
        </>
      )}
    </>
  )
}

/** Does not cut between the two halves of a surrogate pair. */
function endOf(text: string, length: number): number {
  const unit = text.charCodeAt(length)
  return unit >= 0xdc00 && unit <= 0xdfff ? length + 1 : length
}

/**
 * Makes text safe to show on one line: control characters and similar characters become escapes.
 */
export const escapeLine = escapeControls

/** Makes text safe to show on several lines. Like escapeLine, but line feeds and tabs are kept. */
export function escapeText(text: string): string {
  return text.replace(/[^\n\t]+/g, escapeControls)
}
