import type { JsonObject } from '../../attestation/json/value.ts'

/** Chunks between a node that pushes and one caller who pulls. */
export type ChunkQueue = {
  readonly chunks: AsyncIterable<JsonObject>
  /** Bytes of the chunks that wait. */
  waitingBytes(): number
  push(chunk: JsonObject, bytes: number): void
  /** Nothing more comes: what waits is still given, then the iteration ends, or throws `error`. Only the first time counts. */
  end(error: Error | null): void
  /** Drops what waits, and the iteration throws `reason` at once. */
  discard(reason: unknown): void
}

/** Makes an empty queue. `onLeave` is told when the caller leaves the iteration before its end. */
export function createChunkQueue(onLeave: () => void): ChunkQueue {
  let waiting: { readonly chunk: JsonObject; readonly bytes: number }[] = []
  let taken = 0
  let bytes = 0
  let isEnded = false
  let fault: { readonly reason: unknown } | null = null
  let reader: PromiseWithResolvers<IteratorResult<JsonObject>> | null = null

  function shift(): JsonObject | null {
    const item = waiting[taken]
    if (item === undefined) return null
    taken++
    bytes -= item.bytes
    // Taken items are let go in one piece: shifting a long array would copy it each time.
    if (taken === waiting.length) {
      waiting = []
      taken = 0
    }
    return item.chunk
  }

  function next(): Promise<IteratorResult<JsonObject>> {
    const chunk = shift()
    if (chunk !== null) return Promise.resolve({ done: false, value: chunk })
    if (fault !== null) return Promise.reject(fault.reason)
    if (isEnded) return Promise.resolve({ done: true, value: undefined })
    if (reader !== null) return Promise.reject(new TypeError('expected one reader at a time'))
    reader = Promise.withResolvers()
    return reader.promise
  }

  function close(reason: { readonly reason: unknown } | null): void {
    if (isEnded) return
    isEnded = true
    fault = reason
    if (reason === null) reader?.resolve({ done: true, value: undefined })
    else reader?.reject(reason.reason)
    reader = null
  }

  const iterator: AsyncIterableIterator<JsonObject, undefined> = {
    next,
    return() {
      const isEarly = !isEnded || waiting.length > 0
      waiting = []
      bytes = 0
      taken = 0
      close(null)
      if (isEarly) onLeave()
      return Promise.resolve({ done: true, value: undefined })
    },
    [Symbol.asyncIterator]: () => iterator,
  }

  return {
    chunks: iterator,
    waitingBytes: () => bytes,
    push(chunk, size) {
      if (isEnded) return
      if (reader === null) {
        waiting.push({ chunk, bytes: size })
        bytes += size
        return
      }
      reader.resolve({ done: false, value: chunk })
      reader = null
    },
    end: (error) => close(error === null ? null : { reason: error }),
    discard(reason) {
      waiting = []
      bytes = 0
      taken = 0
      close({ reason })
    },
  }
}
