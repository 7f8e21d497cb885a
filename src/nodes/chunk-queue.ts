import type { JsonObject } from '../../attestation/json/value.ts'

/** Chunks that waited together, and the bytes of the frames that they came in. */
export type ChunkBatch = { readonly chunks: readonly JsonObject[]; readonly bytes: number }

/** Chunks between a node that pushes and one caller who pulls. */
export type ChunkQueue = {
  /** At each step all that waits: chunks that came in one packet are taken, and passed on, together. */
  readonly batches: AsyncIterable<ChunkBatch>
  /** Bytes of the chunks that wait. */
  waitingBytes(): number
  /** Adds what one frame of so many bytes amounts to. */
  push(chunks: readonly JsonObject[], bytes: number): void
  /** Nothing more comes: what waits is still given, then the iteration ends, or throws `error`. Only the first time counts. */
  end(error: Error | null): void
  /** Drops what waits, and the iteration throws `reason` at once. */
  discard(reason: unknown): void
}

/** Makes an empty queue. `onLeave` is told when the caller leaves the iteration before its end. */
export function createChunkQueue(onLeave: () => void): ChunkQueue {
  let waiting: JsonObject[] = []
  let waitingBytes = 0
  let end: { readonly error: { readonly reason: unknown } | null } | null = null
  let reader: PromiseWithResolvers<void> | null = null

  function take(): ChunkBatch {
    const batch = { chunks: waiting, bytes: waitingBytes }
    waiting = []
    waitingBytes = 0
    return batch
  }

  /** The reader goes on when the packet is read, and so takes what else is in it. */
  function wake(): void {
    reader?.resolve()
    reader = null
  }

  async function next(): Promise<IteratorResult<ChunkBatch, undefined>> {
    if (waiting.length === 0 && end === null) {
      if (reader !== null) throw new TypeError('expected one reader at a time')
      reader = Promise.withResolvers()
      await reader.promise
    }
    if (waiting.length > 0) return { done: false, value: take() }
    if (end !== null && end.error !== null) throw end.error.reason
    return DONE
  }

  function close(error: { readonly reason: unknown } | null): void {
    if (end !== null) return
    end = { error }
    wake()
  }

  const iterator: AsyncIterableIterator<ChunkBatch, undefined> = {
    next,
    return() {
      const isEarly = end === null || waiting.length > 0
      take()
      close(null)
      if (isEarly) onLeave()
      return Promise.resolve(DONE)
    },
    [Symbol.asyncIterator]: () => iterator,
  }

  return {
    batches: iterator,
    waitingBytes: () => waitingBytes,
    push(chunks, bytes) {
      if (end !== null || chunks.length === 0) return
      waiting.push(...chunks)
      waitingBytes += bytes
      wake()
    },
    end: (error) => close(error === null ? null : { reason: error }),
    discard(reason) {
      take()
      close({ reason })
    },
  }
}

const DONE = { done: true, value: undefined } as const
