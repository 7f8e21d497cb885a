import { z } from 'zod'

/**
 * The gateway's relayers: the accounts that paid for served anchors, with the nonces of these
 * payments.
 */
export type Payers = ReturnType<typeof openPayers>

/** Null: the state file has no payers. */
export function openPayers(written: WrittenPayers | null = {}) {
  const nonces = new Map(
    Object.entries(written ?? {}).map(([address, ranges]) => [
      address,
      new NonceSet(ranges.map(([start, end]) => ({ start, end }))),
    ]),
  )
  return {
    /** False if a run of an earlier version walked heads and did not record their payers. */
    isWhole: written !== null,
    record({ address, nonce }: { readonly address: string; readonly nonce: number }): void {
      const known = nonces.get(address) ?? new NonceSet()
      known.add(nonce)
      nonces.set(address, known)
    },
    has: (address: string): boolean => nonces.has(address),
    addresses: (): readonly string[] => [...nonces.keys()],
    /** Returns the nonces below `end` that no served anchor of the account has. */
    gapsBelow: (address: string, end: number): readonly NonceRange[] =>
      (nonces.get(address) ?? new NonceSet()).gapsBelow(end),
    endOf: (address: string): number => nonces.get(address)?.end ?? 0,
    write: (): WrittenPayers =>
      Object.fromEntries(
        [...nonces].map(([address, set]) => [
          address,
          set.list().map(({ start, end }) => [start, end]),
        ]),
      ),
  }
}

const Nonce = z.int().min(0)

/** Ranges of nonces (start, end) by address. */
export const WrittenPayersForm = z.record(
  z.string().regex(/^0x[0-9a-f]{40}$/),
  z
    .array(z.tuple([Nonce, Nonce]))
    .refine(
      (ranges) =>
        ranges.every(([start, end], at) => start < end && start > (ranges[at - 1]?.[1] ?? -1)),
      'expected ranges of nonces, ascending and apart',
    ),
)

export type WrittenPayers = z.infer<typeof WrittenPayersForm>

/** The range does not include `end`. */
type NonceRange = { readonly start: number; readonly end: number }

/** Stores ranges. A relayer that only sends anchors has one range. */
export class NonceSet {
  /** In ascending order. At least one nonce is missing between two ranges. */
  private ranges: NonceRange[]

  constructor(ranges: readonly NonceRange[] = []) {
    this.ranges = [...ranges]
  }

  /** The first nonce that is higher than all nonces in the set. */
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
    this.ranges.splice(at - (joinsBefore ? 1 : 0), Number(joinsBefore) + Number(joinsAfter), {
      start,
      end,
    })
  }

  /** The nonces below `end` that are not in the set, in ascending order. */
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

  /** Number of ranges that begin at or below the nonce. */
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
