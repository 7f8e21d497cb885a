/**
 * True if `literal`, a number in JSON text, has the decimal value that canonical JSON writes for
 * the double `value`. True for 1E30, 4.50 and 100. False for 9007199254740993, 1e-400 and
 * 0.1000000000000000001.
 */
export function isExactNumber(literal: string, value: number): boolean {
  if (!Number.isFinite(value)) return false
  // A double keeps up to 15 digits with any exponent unless it is subnormal (DBL_DIG of C).
  if (literal.length <= 15 && Math.abs(value) >= SMALLEST_NORMAL) return true
  const written = decimalOf(literal)
  const kept = decimalOf(String(value))
  return written.digits === kept.digits && written.exponent === kept.exponent
}

/** 2^-1022 */
const SMALLEST_NORMAL = 2.2250738585072014e-308

/** |number| = 0.digits × 10^exponent. The digits neither begin nor end with 0. 0 has no digits. */
function decimalOf(literal: string): { readonly digits: string; readonly exponent: number } {
  const unsigned = literal.startsWith('-') ? literal.slice(1) : literal
  const [mantissa = '', power = '0'] = unsigned.split(/[eE]/)
  const [whole = '', fraction = ''] = mantissa.split('.')
  const all = whole + fraction
  const start = all.search(/[1-9]/)
  if (start < 0) return { digits: '', exponent: 0 }
  let end = all.length
  while (all.charCodeAt(end - 1) === 0x30) end--
  return { digits: all.slice(start, end), exponent: whole.length - start + Number(power) }
}
