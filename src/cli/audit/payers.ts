import { z } from 'zod'
import { type NonceRange, NonceSet } from './nonce-set.ts'

/**
 * The relayers of a gateway: who paid for the anchors that it serves, as the chain says, and with
 * which nonces. Of all logs that this audit came to, and those that it goes on from.
 */
export type Payers = {
  /** False when a run of an earlier version walked heads without noting who paid for them. */
  readonly isWhole: boolean
  note(payer: { readonly address: string; readonly nonce: number }): void
  has(address: string): boolean
  addresses(): readonly string[]
  /** Nonces below `end` that no served anchor was sent with. */
  gapsBelow(address: string, end: number): readonly NonceRange[]
  /** The first nonce above all that were noted. */
  endOf(address: string): number
}

/** Gives payers that go on from those that were written; null: from a state that has none. */
export function openPayers(written: WrittenPayers | null = {}): Payers & { write(): WrittenPayers } {
  const nonces = new Map(
    Object.entries(written ?? {}).map(([address, ranges]) => [
      address,
      new NonceSet(ranges.map(([start, end]) => ({ start, end }))),
    ]),
  )
  return {
    isWhole: written !== null,
    note({ address, nonce }) {
      const known = nonces.get(address) ?? new NonceSet()
      known.add(nonce)
      nonces.set(address, known)
    },
    has: (address) => nonces.has(address),
    addresses: () => [...nonces.keys()],
    gapsBelow: (address, end) => (nonces.get(address) ?? new NonceSet()).gapsBelow(end),
    endOf: (address) => nonces.get(address)?.end ?? 0,
    write: () =>
      Object.fromEntries(
        [...nonces].map(([address, set]) => [
          address,
          set.list().map(({ start, end }): [number, number] => [start, end]),
        ]),
      ),
  }
}

const Nonce = z.int().min(0)

/** Ranges of nonces (start, end) by address, as a state file has them. */
export const WrittenPayersForm = z.record(
  z.string().regex(/^0x[0-9a-f]{40}$/),
  z
    .array(z.tuple([Nonce, Nonce]))
    .refine(
      (ranges) => ranges.every(([start, end], at) => start < end && start > (ranges[at - 1]?.[1] ?? -1)),
      'expected ranges of nonces, ascending and apart',
    ),
)

/** Payers as a state file has them. */
export type WrittenPayers = z.infer<typeof WrittenPayersForm>
