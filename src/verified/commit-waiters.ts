import type { StoredRecord } from './records-store.ts'

/** Somebody who waits for one leaf to be committed. */
export type Waiter = {
  readonly notary: string
  readonly index: number
  /** Ends the waiting; only the first of both counts. */
  resolve(record: StoredRecord): void
  reject(error: Error): void
}

/** Everybody who waits, by the leaf they wait for. */
type CommitWaiters = {
  /**
   * Waits for a leaf. Rejects with the signal's reason once it is aborted; then nothing is left of
   * the waiter.
   */
  add(
    notary: string,
    index: number,
    signal: AbortSignal,
  ): { readonly waiter: Waiter; readonly record: Promise<StoredRecord> }
  /** Those who wait for this leaf. */
  of(notary: string, index: number): readonly Waiter[]
  /** Everybody, in the order they came. */
  all(): readonly Waiter[]
  /** How many wait. */
  count(): number
}

/** Gives an empty registry. */
export function createCommitWaiters(): CommitWaiters {
  const waiting = new Set<Waiter>()
  const byLeaf = new Map<string, Set<Waiter>>()

  function enter(waiter: Waiter): void {
    waiting.add(waiter)
    const key = keyOf(waiter.notary, waiter.index)
    byLeaf.set(key, (byLeaf.get(key) ?? new Set()).add(waiter))
  }

  function leave(waiter: Waiter): void {
    waiting.delete(waiter)
    const key = keyOf(waiter.notary, waiter.index)
    const others = byLeaf.get(key)
    others?.delete(waiter)
    if (others?.size === 0) byLeaf.delete(key)
  }

  return {
    add(notary, index, signal) {
      const { promise, resolve, reject } = Promise.withResolvers<StoredRecord>()
      const end = () => {
        leave(waiter)
        signal.removeEventListener('abort', abort)
      }
      const abort = () => {
        end()
        reject(signal.reason)
      }
      const waiter: Waiter = {
        notary,
        index,
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
        enter(waiter)
        signal.addEventListener('abort', abort)
      }
      return { waiter, record: promise }
    },
    of: (notary, index) => [...(byLeaf.get(keyOf(notary, index)) ?? [])],
    all: () => [...waiting],
    count: () => waiting.size,
  }
}

function keyOf(notary: string, index: number): string {
  return `${notary}/${index}`
}

export type CommitErrorCode =
  | 'notary_gone' //   the enclave that sealed it is gone, and took it along uncommitted: it is lost
  | 'log_diverged' //  the database lost what the enclave was told is safe; nothing is committed until that is repaired
  | 'stopped' //       the gateway stops; the leaf is committed after its next start if the enclave lives on

/** Why a leaf that somebody waits for is not committed here and now. */
export class CommitError extends Error {
  override readonly name = 'CommitError'
  readonly code: CommitErrorCode

  constructor(code: CommitErrorCode, message: string) {
    super(message)
    this.code = code
  }
}
