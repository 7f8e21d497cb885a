/**
 * Returns the first `length` characters of a hex text, and its last four characters. People can
 * recognise the text by these characters.
 */
export function shortenHex(text: string, length = 10): string {
  return `${text.slice(0, length)}…${text.slice(-4)}`
}
