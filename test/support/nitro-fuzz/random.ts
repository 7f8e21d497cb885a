/** Random numbers that are the same for the same seed. */
export type Random = {
  /** From 0 to below `limit`. */
  below(limit: number): number
  /** One of `items`; throws when the list is empty. */
  pick<Item>(items: readonly Item[]): Item
  bytes(length: number): Uint8Array
}

/** mulberry32: small, fast and good enough to choose mutations. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return (mixed ^ (mixed >>> 14)) >>> 0
  }
  const below = (limit: number) => Math.floor((next() / 2 ** 32) * limit)
  return {
    below,
    pick(items) {
      const item = items[below(items.length)]
      if (item === undefined) throw new RangeError('expected items to pick from')
      return item
    },
    bytes: (length) => Uint8Array.from({ length }, () => below(256)),
  }
}
