import { useState } from 'preact/hooks'
import { escapeControls } from '../../../attestation/report/printable.ts'

/**
 * Characters of a text that are shown at first: more would make a page slow, and hide what follows.
 */
export const SHOWN_LENGTH_MAX = 4_000

/**
 * Shows text from outside as text. Characters that control a terminal or the direction of text are
 * written as escapes. The number of marks on one character is bounded. Line feeds and tabs are
 * kept. The beginning of a long text is shown, the rest step by step. `isOneLine` escapes line
 * feeds, too.
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

/** Does not cut between the two halves of a character. */
function endOf(text: string, length: number): number {
  const unit = text.charCodeAt(length)
  return unit >= 0xdc00 && unit <= 0xdfff ? length + 1 : length
}

/** Text as one line in which no character acts: control characters and the like are escapes. */
export const escapeLine = escapeControls

/** The same for several lines: line feeds and tabs are kept. */
export function escapeText(text: string): string {
  return text.replace(/[^\n\t]+/g, escapeControls)
}
