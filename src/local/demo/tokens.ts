/**
 * One token of the demonstration: up to eight letters, digits or marks with one blank before them,
 * else one character.
 */
const TOKEN = / ?[\p{L}\p{N}\p{M}]{1,8}|./gsu

/** Gives the tokens of a text, in order; joined together they are the text again. */
export function splitTokens(text: string): readonly string[] {
  return text.match(TOKEN) ?? []
}

/** Gives how many tokens a text has. */
export function countTokens(text: string): number {
  return splitTokens(text).length
}
