import type { NoticeCompletion } from '#enclave/protocol/enclave-api.ts'
import type { AnsweredRecord } from '../records/records-store.ts'

/** At most this many records are read at once. */
const SETTLED_AT_ONCE_MAX = 128

/** A caller waits for this leaf. */
export type AwaitedLeaf = {
  readonly index: number
  /** The completion, if the enclave sent it with its answer. */
  readonly given: NoticeCompletion | null
}

export type Waiter = AwaitedLeaf & {
  readonly notary: string
  /** When the caller began to wait, as performance.now(). */
  readonly sinceMs: number
  /** Only the first call of `resolve` or `reject` has an effect. */
  resolve(record: AnsweredRecord): void
  reject(error: Error): void
}

export class CommitWaiters {
  readonly #waiting = new Set<Waiter>()
  readonly #byLeaf = new Map<string, Set<Waiter>>()

  /** If the signal is aborted, `record` rejects with the signal's reason. */
  add(
    notary: string,
    { index, given }: AwaitedLeaf,
    signal: AbortSignal,
  ): { readonly waiter: Waiter; readonly record: Promise<AnsweredRecord> } {
    const { promise, resolve, reject } = Promise.withResolvers<AnsweredRecord>()
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
      given,
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

  of(notary: string, index: number): readonly Waiter[] {
    return [...(this.#byLeaf.get(keyOf(notary, index)) ?? [])]
  }

  /** Waiters in the order in which they began to wait. */
  all(): readonly Waiter[] {
    return [...this.#waiting]
  }

  /**
   * When the longest waiting caller began to wait, as performance.now(). Infinity without waiters.
   */
  oldestMs(): number {
    const [oldest] = this.#waiting
    return oldest?.sinceMs ?? Number.POSITIVE_INFINITY
  }

  /**
   * Resolves waiters for the first `size` leaves with the records that `read` finds, and returns
   * their number. Throws the errors of `read`.
   */
  async settle(
    { notary, size }: { readonly notary: string; readonly size: number },
    read: (notary: string, leaves: readonly AwaitedLeaf[]) => Promise<readonly AnsweredRecord[]>,
  ): Promise<number> {
    let count = 0
    for (;;) {
      const due = this.all().filter((waiter) => waiter.notary === notary && waiter.index < size)
      const byIndex = new Map(due.map((waiter) => [waiter.index, waiter]))
      const leaves = [...byIndex.values()].slice(0, SETTLED_AT_ONCE_MAX)
      if (leaves.length === 0) return count
      const found = await read(notary, leaves)
      for (const record of found)
        for (const waiter of this.of(notary, record.index)) waiter.resolve(record)
      count += found.length
      if (found.length < leaves.length) return count
    }
  }

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
