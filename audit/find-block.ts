/** Both ends are inclusive. */
export type BlockRange = { readonly fromBlock: number; readonly toBlock: number }

/**
 * Finds the first block for which `holds` returns true, by binary search. `holds` must return true
 * for all later blocks. Returns null when `holds` returns null (the endpoint lacks the data).
 * Throws the errors of `holds`.
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
