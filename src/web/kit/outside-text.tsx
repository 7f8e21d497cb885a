import { useState } from 'preact/hooks'
import { escapeControls } from '#attestation/report/printable.ts'

/** Characters that are shown at first. A longer text would slow the page. */
const SHOWN_LENGTH_MAX = 4_000

/**
 * Shows untrusted text as plain text. Characters that control a terminal or the direction of text
 * become escapes, but line feeds and tabs stay. One character has a limited number of combining
 * marks. A long text is shown step by step. `isOneLine` turns line feeds into escapes too.
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

/** Never cuts within a surrogate pair. */
function endOf(text: string, length: number): number {
  const unit = text.charCodeAt(length)
  return unit >= 0xdc00 && unit <= 0xdfff ? length + 1 : length
}

/** Escapes control and similar characters, for text on one line. */
export const escapeLine = escapeControls

/** Keeps line feeds and tabs, for text of several lines. */
function escapeText(text: string): string {
  return text.replace(/[^\n\t]+/g, escapeControls)
}
