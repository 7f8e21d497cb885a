/** The first `length` and the last four characters of a hex text, for people to recognise. */
export function shortenHex(text: string, length = 10): string {
  return `${text.slice(0, length)}…${text.slice(-4)}`
}
