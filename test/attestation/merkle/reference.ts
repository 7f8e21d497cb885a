import { createHash } from 'node:crypto'

type Reference = {
  readonly root: (size: number) => Uint8Array
  /** PATH(index, D_size), RFC 9162 section 2.1.3.1. */
  readonly path: (index: number, size: number) => readonly Uint8Array[]
  /** PROOF(first, D_second), section 2.1.4.1, for 0 < first. */
  readonly consistency: (first: number, second: number) => readonly Uint8Array[]
}

/**
 * The definitions of RFC 9162 section 2.1 as they stand there, recursive, over ranges of one list
 * of leaves and the platform's SHA-256, to compare the real thing with. Roots of ranges are kept,
 * or all pairs would take minutes.
 */
export function createReference(leaves: readonly Uint8Array[]): Reference {
  const roots = new Map<string, Uint8Array>()

  const rangeRoot = (start: number, end: number): Uint8Array => {
    const key = `${start} ${end}`
    const known = roots.get(key)
    if (known !== undefined) return known
    const root = computeRoot(start, end)
    roots.set(key, root)
    return root
  }
  const computeRoot = (start: number, end: number): Uint8Array => {
    if (start === end) return digest()
    if (end - start === 1) return digest([0], leaves[start] ?? [])
    const middle = start + splitOf(end - start)
    return digest([1], rangeRoot(start, middle), rangeRoot(middle, end))
  }
  const path = (index: number, start: number, end: number): readonly Uint8Array[] => {
    if (end - start === 1) return []
    const middle = start + splitOf(end - start)
    return index < middle
      ? [...path(index, start, middle), rangeRoot(middle, end)]
      : [...path(index, middle, end), rangeRoot(start, middle)]
  }
  const proof = (
    first: number,
    start: number,
    end: number,
    isWhole: boolean,
  ): readonly Uint8Array[] => {
    if (first === end) return isWhole ? [] : [rangeRoot(start, end)]
    const middle = start + splitOf(end - start)
    return first <= middle
      ? [...proof(first, start, middle, isWhole), rangeRoot(middle, end)]
      : [...proof(first, middle, end, false), rangeRoot(start, middle)]
  }
  return {
    root: (size) => rangeRoot(0, size),
    path: (index, size) => path(index, 0, size),
    consistency: (first, second) => proof(first, 0, second, true),
  }
}

/** Leaf data that differ from each other, the first of 0 bytes. */
export function exampleLeaves(count: number): readonly Uint8Array[] {
  return Array.from(
    { length: count },
    (_, index) => new Uint8Array(Buffer.from(index === 0 ? '' : String(index))),
  )
}

function splitOf(count: number): number {
  let split = 1
  while (split * 2 < count) split *= 2
  return split
}

function digest(...parts: readonly (Uint8Array | readonly number[])[]): Uint8Array {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(Uint8Array.from(part))
  return new Uint8Array(hash.digest())
}
