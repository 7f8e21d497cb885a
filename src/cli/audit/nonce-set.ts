/** Nonces from `start` to before `end`. */
export type NonceRange = { readonly start: number; readonly end: number }

/**
 * Nonces of one account, as ranges: a relayer that only anchors has one, however many anchors it
 * paid for.
 */
export class NonceSet {
  /** Ascending; between two of them at least one nonce is missing. */
  private ranges: NonceRange[]

  constructor(ranges: readonly NonceRange[] = []) {
    this.ranges = [...ranges]
  }

  /** The first nonce above all that are in it. */
  get end(): number {
    return this.ranges.at(-1)?.end ?? 0
  }

  add(nonce: number): void {
    const at = this.countBelow(nonce)
    const before = this.ranges[at - 1]
    if (before !== undefined && nonce < before.end) return
    const after = this.ranges[at]
    const joinsBefore = before?.end === nonce
    const joinsAfter = after?.start === nonce + 1
    const start = joinsBefore ? before.start : nonce
    const end = joinsAfter ? after.end : nonce + 1
    this.ranges.splice(at - (joinsBefore ? 1 : 0), Number(joinsBefore) + Number(joinsAfter), { start, end })
  }

  /** Nonces below `end` that are not in it, ascending. */
  gapsBelow(end: number): readonly NonceRange[] {
    const starts = [0, ...this.ranges.map((range) => range.end)]
    const ends = [...this.ranges.map((range) => range.start), end]
    return starts
      .map((start, at) => ({ start, end: Math.min(ends[at] ?? end, end) }))
      .filter((gap) => gap.start < gap.end)
  }

  list(): readonly NonceRange[] {
    return this.ranges
  }

  /** How many ranges begin at or below the nonce. */
  private countBelow(nonce: number): number {
    let low = 0
    let high = this.ranges.length
    while (low < high) {
      const middle = Math.floor((low + high) / 2)
      if ((this.ranges[middle]?.start ?? 0) <= nonce) low = middle + 1
      else high = middle
    }
    return low
  }
}
