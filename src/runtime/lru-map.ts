/**
 * A map that holds the `entriesMax` entries that were used last: what is read or set counts as
 * used.
 */
export class LruMap<Key, Value> {
  readonly #entries = new Map<Key, Value>()
  readonly #entriesMax: number

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax
  }

  get size(): number {
    return this.#entries.size
  }

  get(key: Key): Value | undefined {
    const value = this.#entries.get(key)
    if (value !== undefined) this.set(key, value)
    return value
  }

  /** The value of a key, made and kept when there is none. */
  getOrMake(key: Key, make: () => Value): Value {
    const known = this.get(key)
    if (known !== undefined) return known
    const value = make()
    this.set(key, value)
    return value
  }

  /** Adds or replaces an entry; the one that was used longest ago makes room. */
  set(key: Key, value: Value): void {
    this.#entries.delete(key)
    this.#entries.set(key, value)
    if (this.#entries.size <= this.#entriesMax) return
    const [oldest] = this.#entries.keys()
    if (oldest !== undefined) this.#entries.delete(oldest)
  }

  delete(key: Key): boolean {
    return this.#entries.delete(key)
  }

  /** Entries, the one that was used longest ago first. Reading them so does not count as use. */
  [Symbol.iterator](): IterableIterator<[Key, Value]> {
    return this.#entries[Symbol.iterator]()
  }
}
