/** Maximum characters of attacker-controlled text that are shown on one line. */
export const PRINTED_LENGTH_MAX = 500

/**
 * Maximum number of combining marks on one character. Real writing has up to four. More marks could
 * be drawn over other lines.
 */
export const MARKS_MAX = 5

/**
 * Makes attacker-controlled text safe to show, up to PRINTED_LENGTH_MAX. Escapes control characters
 * and similar characters: the text must not move the cursor, change the text direction or overwrite
 * other output. Shows the first MARKS_MAX combining marks on a character, and counts the others.
 * Puts a dotted circle before marks at the beginning of the text.
 */
export function printable(text: string): string {
  const cut = text.length > PRINTED_LENGTH_MAX ? `${text.slice(0, PRINTED_LENGTH_MAX)}…` : text
  return escapeControls(cut)
}

/**
 * Puts attacker-controlled text into quotation marks that it cannot end, up to `lengthMax`: within
 * a sentence it must not look like words of the report.
 */
export function quoted(text: string, lengthMax = PRINTED_LENGTH_MAX): string {
  const cut = text.length > lengthMax ? `${text.slice(0, lengthMax)}…` : text
  return `“${escapeControls(cut).replace(/[“”"]/g, escapeQuote)}”`
}

function escapeQuote(mark: string): string {
  return `\\u{${mark.charCodeAt(0).toString(16)}}`
}

/** Same as printable, for text of any length. Escapes line feeds too. */
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

/** Formats a time, Unix milliseconds. Returns `otherwise` if the time is not a valid date. */
export function isoOf(timeMs: number, otherwise = `${timeMs} ms`): string {
  const time = new Date(timeMs)
  return Number.isNaN(time.getTime()) ? otherwise : time.toISOString()
}
