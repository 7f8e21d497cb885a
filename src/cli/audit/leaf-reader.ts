import type { Gateway } from './gateway.ts'
import { readAhead } from './read-ahead.ts'

/** Leaf hashes of one log from a position to its end, in order. */
export type LeafReader = {
  /** The next hashes, at least one and at most so many. Throws GatewayFault. */
  take(countMax: number): Promise<readonly Uint8Array[]>
  close(): Promise<void>
}

/** Gives a reader of the leaves [start, end), which holds two pages at a time. */
export function openLeafReader(
  gateway: Pick<Gateway, 'fetchLeaves'>,
  { notary, start, end }: { readonly notary: string; readonly start: number; readonly end: number },
): LeafReader {
  const pages = readAhead(readPages())
  let page: readonly Uint8Array[] = []

  async function* readPages(): AsyncGenerator<readonly Uint8Array[]> {
    for (let position = start; position < end; ) {
      const leaves = await gateway.fetchLeaves(notary, position, end)
      yield leaves
      position += leaves.length
    }
  }

  return {
    async take(countMax) {
      if (page.length === 0) {
        const next = await pages.next()
        if (next.done) throw new RangeError(`expected no leaf to be asked for beyond ${end}`)
        page = next.value
      }
      const taken = page.slice(0, countMax)
      page = page.slice(countMax)
      return taken
    },
    close: async () => void (await pages.return(undefined)),
  }
}
