/** Gives a bigint column's text as a number. Throws a RangeError beyond 2^53-1, where a number would be another one. */
export function parseInt8(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value)) throw new RangeError(`expected a bigint within 2^53-1, got ${text}`)
  return value
}
