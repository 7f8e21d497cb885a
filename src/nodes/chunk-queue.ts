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
  const backlog = createBacklog()
  let end: { readonly error: { readonly reason: unknown } | null } | null = null
  let reader: PromiseWithResolvers<IteratorResult<JsonObject>> | null = null

  function next(): Promise<IteratorResult<JsonObject>> {
    const chunk = backlog.take()
    if (chunk !== null) return Promise.resolve({ done: false, value: chunk })
    if (end !== null) return end.error === null ? Promise.resolve(DONE) : Promise.reject(end.error.reason)
    if (reader !== null) return Promise.reject(new TypeError('expected one reader at a time'))
    reader = Promise.withResolvers()
    return reader.promise
  }

  function close(error: { readonly reason: unknown } | null): void {
    if (end !== null) return
    end = { error }
    if (error === null) reader?.resolve(DONE)
    else reader?.reject(error.reason)
    reader = null
  }

  const iterator: AsyncIterableIterator<JsonObject, undefined> = {
    next,
    return() {
      const isEarly = end === null || backlog.bytes() > 0
      backlog.clear()
      close(null)
      if (isEarly) onLeave()
      return Promise.resolve(DONE)
    },
    [Symbol.asyncIterator]: () => iterator,
  }

  return {
    chunks: iterator,
    waitingBytes: backlog.bytes,
    push(chunk, size) {
      if (end !== null) return
      if (reader === null) backlog.add(chunk, size)
      else reader.resolve({ done: false, value: chunk })
      reader = null
    },
    end: (error) => close(error === null ? null : { reason: error }),
    discard(reason) {
      backlog.clear()
      close({ reason })
    },
  }
}

const DONE = { done: true, value: undefined } as const

/** Chunks in order, and their bytes together. */
function createBacklog() {
  let waiting: { readonly chunk: JsonObject; readonly bytes: number }[] = []
  let taken = 0
  let bytes = 0

  function clear(): void {
    waiting = []
    taken = 0
    bytes = 0
  }

  return {
    clear,
    bytes: () => bytes,
    add(chunk: JsonObject, size: number): void {
      waiting.push({ chunk, bytes: size })
      bytes += size
    },
    take(): JsonObject | null {
      const item = waiting[taken]
      if (item === undefined) return null
      taken++
      bytes -= item.bytes
      // Taken items are let go when they are half of all: shifting a long array would copy it each time.
      if (taken * 2 >= waiting.length) {
        waiting = waiting.slice(taken)
        taken = 0
      }
      return item.chunk
    },
  }
}
