/**
 * True if a gateway may state this text: one line of 1 to `lengthMax` code points, without control
 * and format characters.
 */
export function isStatedText(text: string, lengthMax: number): boolean {
  if (text.length === 0 || text.length > 2 * lengthMax) return false
  return [...text].length <= lengthMax && !CONTROL.test(text)
}

const CONTROL = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u
