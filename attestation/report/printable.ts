/** Longest text from outside that is shown on one line, characters. */
export const PRINTED_LENGTH_MAX = 500

/**
 * Marks that stand on one character, at most. Writing has up to three or four; more of them are
 * drawn above and below the line, over what stands there.
 */
export const MARKS_MAX = 5

/**
 * Gives text from outside in a form that is only shown, whole up to PRINTED_LENGTH_MAX: control
 * characters and the like are written as escapes, so that a record cannot move a terminal's cursor,
 * turn the direction of a page's text or write another outcome over its own. Of the marks on a
 * character the first MARKS_MAX stand, and the rest is counted. Marks at the beginning get a circle
 * to stand on, since they would be drawn on what is before the text.
 */
export function printable(text: string): string {
  const cut = text.length > PRINTED_LENGTH_MAX ? `${text.slice(0, PRINTED_LENGTH_MAX)}…` : text
  return escapeControls(cut)
}

/** As printable, of a text of any length; a line feed is a control character, too. */
export function escapeControls(text: string): string {
  return text
    .replace(
      /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu,
      (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
    )
    .replace(MARKS, (_, kept: string, rest: string) => `${kept}[+${Array.from(rest).length} marks]`)
    .replace(/^\p{M}/u, '\u25cc$&')
}

const MARKS = new RegExp(`(\\p{M}{${MARKS_MAX}})(\\p{M}+)`, 'gu')

/** A time in Unix milliseconds, in words; `otherwise` for one that no date can be. */
export function isoOf(timeMs: number, otherwise = `${timeMs} ms`): string {
  const time = new Date(timeMs)
  return Number.isNaN(time.getTime()) ? otherwise : time.toISOString()
}
