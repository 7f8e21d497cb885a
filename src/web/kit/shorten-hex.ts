/** The beginning of a hex text, `length` characters, and its last four: enough to tell it apart. */
export function shortenHex(text: string, length = 10): string {
  return `${text.slice(0, length)}…${text.slice(-4)}`
}
