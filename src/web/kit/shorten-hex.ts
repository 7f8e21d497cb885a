/**
 * The first `length` characters of a hex text, and its last four. This is enough to recognise the
 * text.
 */
export function shortenHex(text: string, length = 10): string {
  return `${text.slice(0, length)}…${text.slice(-4)}`
}
