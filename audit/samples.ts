import { randomBytes, randomInt } from 'node:crypto'
import type { TreeHead } from '#attestation/tree-head.ts'

/** Maximum number of leaves that are sampled. The same maximum applies to heads. */
const SAMPLES_MAX = 16

/** Returns a random whole number from 0 to `end` - 1. */
export type RandomBelow = (end: number) => number

/** The number is unpredictable. `end` may exceed 2^48, the limit of randomInt. */
export function drawRandom(end: number): number {
  if (end < 2 ** 48) return randomInt(end)
  return Number(randomBytes(8).readBigUInt64BE() % BigInt(end))
}

/** The gateway cannot predict which leaves and heads are sampled. */
export class Samples {
  private readonly random: RandomBelow
  private readonly wanted: ReadonlySet<number>
  private readonly leafHashes = new Map<number, Uint8Array>()
  private readonly kept: TreeHead[] = []
  private seen = 0

  /** Leaf indexes are drawn from `start` up to, but not including, `end`. */
  constructor(
    random: RandomBelow,
    { start, end }: { readonly start: number; readonly end: number },
  ) {
    this.random = random
    const draws = start < end ? SAMPLES_MAX : 0
    this.wanted = new Set(Array.from({ length: draws }, () => start + random(end - start)))
  }

  addLeaves(start: number, hashes: readonly Uint8Array[]): void {
    for (const index of this.wanted) {
      const hash = hashes[index - start]
      if (hash !== undefined) this.leafHashes.set(index, hash)
    }
  }

  /** Drops the leaves from `start` on, because they do not belong to the log. */
  dropLeaves(start: number): void {
    for (const index of this.leafHashes.keys()) if (index >= start) this.leafHashes.delete(index)
  }

  /** Adds a head. All heads so far have the same probability to be in the sample. */
  addHead(head: TreeHead): void {
    this.seen++
    if (this.kept.length < SAMPLES_MAX) this.kept.push(head)
    else {
      const place = this.random(this.seen)
      if (place < SAMPLES_MAX) this.kept[place] = head
    }
  }

  leaves(): ReadonlyMap<number, Uint8Array> {
    return this.leafHashes
  }

  heads(): readonly TreeHead[] {
    return this.kept
  }
}
