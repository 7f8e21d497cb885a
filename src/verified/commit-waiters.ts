import type { RecordsStore, StoredRecord } from './records-store.ts'

/** Records that are read at once for waiters. */
const SETTLED_AT_ONCE_MAX = 128

/** Somebody who waits for one leaf to be committed. */
export type Waiter = {
  readonly notary: string
  readonly index: number
  /** Of performance.now(). */
  readonly sinceMs: number
  /** Ends the waiting; only the first of both counts. */
  resolve(record: StoredRecord): void
  reject(error: Error): void
}

/** Everybody who waits, by the leaf they wait for. */
export class CommitWaiters {
  readonly #waiting = new Set<Waiter>()
  readonly #byLeaf = new Map<string, Set<Waiter>>()

  /**
   * Waits for a leaf. Rejects with the signal's reason once it is aborted; then nothing is left of
   * the waiter.
   */
  add(
    notary: string,
    index: number,
    signal: AbortSignal,
  ): { readonly waiter: Waiter; readonly record: Promise<StoredRecord> } {
    const { promise, resolve, reject } = Promise.withResolvers<StoredRecord>()
    const end = () => {
      this.#leave(waiter)
      signal.removeEventListener('abort', abort)
    }
    const abort = () => {
      end()
      reject(signal.reason)
    }
    const waiter: Waiter = {
      notary,
      index,
      sinceMs: performance.now(),
      resolve(record) {
        end()
        resolve(record)
      },
      reject(error) {
        end()
        reject(error)
      },
    }
    if (signal.aborted) reject(signal.reason)
    else {
      this.#enter(waiter)
      signal.addEventListener('abort', abort)
    }
    return { waiter, record: promise }
  }

  /** Those who wait for this leaf. */
  of(notary: string, index: number): readonly Waiter[] {
    return [...(this.#byLeaf.get(keyOf(notary, index)) ?? [])]
  }

  /** Everybody, in the order they came. */
  all(): readonly Waiter[] {
    return [...this.#waiting]
  }

  /** Since when the first of them waits, performance.now(); Infinity when nobody does. */
  oldestMs(): number {
    const [oldest] = this.#waiting
    return oldest?.sinceMs ?? Number.POSITIVE_INFINITY
  }

  /**
   * Resolves those who wait for the first `size` leaves of a log with what is stored; of leaves
   * that are not they go on waiting. Gives how many records were found. Throws what the store
   * throws.
   */
  async settle(
    { notary, size }: { readonly notary: string; readonly size: number },
    records: Pick<RecordsStore, 'findByIndexes'>,
  ): Promise<number> {
    let count = 0
    for (;;) {
      const due = this.all().filter((waiter) => waiter.notary === notary && waiter.index < size)
      const indexes = [...new Set(due.map(({ index }) => index))].slice(0, SETTLED_AT_ONCE_MAX)
      if (indexes.length === 0) return count
      const found = await records.findByIndexes(notary, indexes)
      for (const record of found)
        for (const waiter of this.of(notary, record.index)) waiter.resolve(record)
      count += found.length
      if (found.length < indexes.length) return count
    }
  }

  /** How many wait. */
  get count(): number {
    return this.#waiting.size
  }

  #enter(waiter: Waiter): void {
    this.#waiting.add(waiter)
    const key = keyOf(waiter.notary, waiter.index)
    this.#byLeaf.set(key, (this.#byLeaf.get(key) ?? new Set()).add(waiter))
  }

  #leave(waiter: Waiter): void {
    this.#waiting.delete(waiter)
    const key = keyOf(waiter.notary, waiter.index)
    const others = this.#byLeaf.get(key)
    others?.delete(waiter)
    if (others?.size === 0) this.#byLeaf.delete(key)
  }
}

function keyOf(notary: string, index: number): string {
  return `${notary}/${index}`
}
