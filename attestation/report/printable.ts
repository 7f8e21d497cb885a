/** Longest text from outside that is shown on one line, characters. */
export const PRINTED_LENGTH_MAX = 500

/**
 * Most combining marks on one character. Real writing has up to three or four. More marks would
 * cover the lines above and below.
 */
export const MARKS_MAX = 5

/**
 * Makes text from outside safe to show. Shows it whole up to PRINTED_LENGTH_MAX. Control characters
 * and similar ones are escaped: a record cannot move a terminal's cursor, change a page's text
 * direction or overwrite its outcome. Of the combining marks on a character, the first MARKS_MAX
 * are shown, and the others are counted. Marks at the beginning get a circle, since they would
 * combine with the text before.
 */
export function printable(text: string): string {
  const cut = text.length > PRINTED_LENGTH_MAX ? `${text.slice(0, PRINTED_LENGTH_MAX)}…` : text
  return escapeControls(cut)
}

/** As printable, for text of any length. Line feeds are escaped too. */
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

/** Describes a time, Unix milliseconds. Gives `otherwise` when it is not a valid date. */
export function isoOf(timeMs: number, otherwise = `${timeMs} ms`): string {
  const time = new Date(timeMs)
  return Number.isNaN(time.getTime()) ? otherwise : time.toISOString()
}
