/** Longest text from outside that is shown on one line, characters. */
export const PRINTED_LENGTH_MAX = 500

/**
 * Gives text from outside in a form that a terminal only shows: control characters and the like are written as escapes,
 * so that a record cannot move the cursor, colour lines or write another outcome over its own.
 */
export function printable(text: string): string {
  const cut = text.length > PRINTED_LENGTH_MAX ? `${text.slice(0, PRINTED_LENGTH_MAX)}…` : text
  return cut.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu, writeEscape)
}

function writeEscape(character: string): string {
  return `\\u{${character.codePointAt(0)?.toString(16)}}`
}
