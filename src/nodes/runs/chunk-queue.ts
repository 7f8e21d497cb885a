import type { JsonObject } from '#attestation/json/value.ts'

/**
 * Maximum size of a batch, except for its last frame. A slow caller has limited time for each
 * write, and a write holds two copies of the batch in memory.
 */
export const BATCH_BYTES_MAX = 64 * 1024

/** `bytes`: size of the chunks' frames, and of the frames without chunks before them. */
export type ChunkBatch = { readonly chunks: readonly JsonObject[]; readonly bytes: number }

/** A node adds chunks, and one caller takes them. */
type ChunkQueue = {
  /**
   * A batch has at most BATCH_BYTES_MAX bytes plus one frame. Chunks that came in one packet are in
   * one batch.
   */
  readonly batches: AsyncIterable<ChunkBatch>
  waitingBytes(): number
  /** Bytes of the frames since the last chunk. A reader may keep parts of them in memory. */
  silentBytes(): number
  /** `bytes`: size of the chunks' frame. */
  push(chunks: readonly JsonObject[], bytes: number): void
  /** After the waiting chunks, the iteration ends or throws `error`. Only the first call counts. */
  end(error: Error | null): void
  /** Drops the waiting chunks. The iteration throws `reason` at once. */
  discard(reason: unknown): void
}

/** `onLeave` is called when the caller leaves the iteration before its end. */
export function createChunkQueue(onLeave: () => void): ChunkQueue {
  let waiting: WaitingBatch[] = []
  let waitingBytes = 0
  let silentBytes = 0
  let end: { readonly error: { readonly reason: unknown } | null } | null = null
  let reader: PromiseWithResolvers<void> | null = null

  function add(chunks: readonly JsonObject[], bytes: number): void {
    let last = waiting.at(-1)
    if (last === undefined || last.bytes >= BATCH_BYTES_MAX) {
      last = { chunks: [], bytes: 0, silentBytes: 0 }
      waiting.push(last)
    }
    last.chunks.push(...chunks)
    last.bytes += bytes
    last.silentBytes += silentBytes
    waitingBytes += bytes
    silentBytes = 0
  }

  function take(): ChunkBatch | null {
    const batch = waiting.shift()
    if (batch === undefined) return null
    waitingBytes -= batch.bytes
    return { chunks: batch.chunks, bytes: batch.bytes + batch.silentBytes }
  }

  function clear(): void {
    waiting = []
    waitingBytes = 0
  }

  /**
   * The reader continues after the whole packet is parsed, and so gets all chunks of the packet.
   */
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
    const batch = take()
    if (batch !== null) return { done: false, value: batch }
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
      clear()
      close(null)
      if (isEarly) onLeave()
      return Promise.resolve(DONE)
    },
    [Symbol.asyncIterator]: () => iterator,
  }

  return {
    batches: iterator,
    waitingBytes: () => waitingBytes,
    silentBytes: () => silentBytes,
    push(chunks, bytes) {
      if (end !== null) return
      if (chunks.length === 0) {
        silentBytes += bytes
        return
      }
      add(chunks, bytes)
      wake()
    },
    end: (error) => close(error === null ? null : { reason: error }),
    discard(reason) {
      clear()
      close({ reason })
    },
  }
}

type WaitingBatch = { readonly chunks: JsonObject[]; bytes: number; silentBytes: number }

const DONE = { done: true, value: undefined } as const
