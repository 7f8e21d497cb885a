import { hash } from 'node:crypto'

/** The next number of a fixed sequence, 0 ≤ number < 1. */
export type Random = () => number

/**
 * The sequence depends only on the text (mulberry32, seeded with the text's SHA-256). Not for
 * secrets.
 */
export function createRandom(seedText: string): Random {
  let state = Number.parseInt(hash('sha256', seedText, 'hex').slice(0, 8), 16)
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** The list must not be empty. */
export function pickFrom<Item>(items: readonly Item[], random: Random): Item {
  return items[Math.floor(random() * items.length)] as Item
}
