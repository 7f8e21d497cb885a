/** Blocks by number, both inclusive. */
export type BlockRange = { readonly fromBlock: number; readonly toBlock: number }

/**
 * Gives the first block of the range for which `holds` is true, by halving. It must hold for the
 * last block, and for every block after the first one. Gives null as soon as `holds` does (the
 * endpoint does not know). Throws what `holds` throws.
 */
export async function findFirstBlock<Unknown extends null = never>(
  { fromBlock, toBlock }: BlockRange,
  holds: (block: number) => Promise<boolean | Unknown>,
): Promise<number | Unknown> {
  let low = fromBlock
  let high = toBlock
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    const held = await holds(middle)
    if (typeof held !== 'boolean') return held
    if (held) high = middle
    else low = middle + 1
  }
  return low
}
