import { equalBytes, HASH_BYTES } from '#attestation/bytes.ts'
import type { BootHead } from '#attestation/evidence/boot-statement.ts'
import type { TreeHead } from '#attestation/tree-head.ts'

/** A head with its notary's signature (65 bytes). */
export type SignedHead = TreeHead & { readonly signature: Uint8Array }

/** A million heads take 40 MB. */
const ENTRY_BYTES = 8 + HASH_BYTES

/** The walked heads, packed and in ascending size. */
export class HeadIndex {
  private entries = new Uint8Array(1024 * ENTRY_BYTES)
  private view = new DataView(this.entries.buffer)
  private count = 0
  private readonly knownFrom: number

  /** The caller will add every walked head that has at least `knownFrom` leaves. */
  constructor(knownFrom: number) {
    this.knownFrom = knownFrom
  }

  /** Returns true if the index contains every walked head of this size. */
  covers(size: number): boolean {
    return this.count > 0 && size >= this.knownFrom && size <= this.sizeAt(this.count - 1)
  }

  /** The head must be larger than all earlier heads. */
  add({ size, root }: TreeHead): void {
    if (this.count > 0 && size <= this.sizeAt(this.count - 1))
      throw new RangeError(`expected a size over ${this.sizeAt(this.count - 1)}, got ${size}`)
    const offset = this.count * ENTRY_BYTES
    if (offset === this.entries.length) this.grow()
    this.view.setFloat64(offset, size)
    this.entries.set(root, offset + 8)
    this.count++
  }

  /** `other`: the index has another head of this size. `unknown`: it has no head of this size. */
  compare({ size, root }: TreeHead): 'same' | 'other' | 'unknown' {
    const known = this.rootAt(size)
    if (known === null) return 'unknown'
    return equalBytes(known, root) ? 'same' : 'other'
  }

  rootAt(size: number): Uint8Array | null {
    let low = 0
    let high = this.count - 1
    while (low <= high) {
      const middle = Math.floor((low + high) / 2)
      const found = this.sizeAt(middle)
      if (found === size)
        return this.entries.slice(middle * ENTRY_BYTES + 8, (middle + 1) * ENTRY_BYTES)
      if (found < size) low = middle + 1
      else high = middle - 1
    }
    return null
  }

  private sizeAt(at: number): number {
    return this.view.getFloat64(at * ENTRY_BYTES)
  }

  private grow(): void {
    const entries = new Uint8Array(this.entries.length * 2)
    entries.set(this.entries)
    this.entries = entries
    this.view = new DataView(entries.buffer)
  }
}

/** Maximum number of named heads that are kept until all logs are walked. */
const NAMED_HEADS_MAX = 100_000

/** `by`: the notary of the enclave that received this head at its start. */
export type NamedHead = BootHead & { readonly by: string }

export type NamedHeads = ReturnType<typeof collectNamedHeads>

/** Collects the heads that enclaves received at their start, each head once. */
export function collectNamedHeads() {
  const heads = new Map<string, NamedHead>()
  let isCut = false
  return {
    add(head: BootHead, by: string): void {
      const key = `${head.notary} ${head.size} ${head.root}`
      if (heads.has(key)) return
      if (heads.size < NAMED_HEADS_MAX) heads.set(key, { ...head, by })
      else isCut = true
    },
    list: (): readonly NamedHead[] => [...heads.values()],
    /** True if more than NAMED_HEADS_MAX heads were added. */
    isCut: (): boolean => isCut,
  }
}
