import { useState } from 'preact/hooks'
import { escapeControls } from '../../../attestation/report/printable.ts'

/**
 * Number of characters that are shown at first. More text would make a page slow, and would hide
 * what is below the text.
 */
export const SHOWN_LENGTH_MAX = 4_000

/**
 * Shows text from outside the page as plain text. Characters that control a terminal or the
 * direction of text become escapes. The number of combining marks on one character is limited. Line
 * feeds and tabs stay. If a text is long, the page first shows its beginning, and the reader can
 * show more step by step. `isOneLine` turns line feeds into escapes too.
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

/** Returns where to cut the text, but never between the two halves of a surrogate pair. */
function endOf(text: string, length: number): number {
  const unit = text.charCodeAt(length)
  return unit >= 0xdc00 && unit <= 0xdfff ? length + 1 : length
}

/** Makes text safe for one line: control characters and similar characters become escapes. */
export const escapeLine = escapeControls

/** Makes text safe for several lines. Works like escapeLine, but line feeds and tabs stay. */
export function escapeText(text: string): string {
  return text.replace(/[^\n\t]+/g, escapeControls)
}
