import fc from 'fast-check'
import { expect, it } from 'vitest'
import { BATCH_BYTES_MAX, type ChunkBatch, createChunkQueue } from '#src/nodes/runs/chunk-queue.ts'

async function collect(batches: AsyncIterable<ChunkBatch>): Promise<readonly unknown[]> {
  const got: unknown[] = []
  for await (const { chunks } of batches) got.push(...chunks.map(({ n }) => n))
  return got
}

it('a chunk queue gives everything in order, however pushing and reading interleave', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.boolean(), { maxLength: 60 }), async (pauses) => {
      const queue = createChunkQueue(() => {})
      const read = collect(queue.batches)
      for (const [n, pause] of pauses.entries()) {
        queue.push([{ n }], 1)
        if (pause) await new Promise((resolve) => setImmediate(resolve))
      }
      queue.end(null)
      expect(await read).toEqual(pauses.map((_, n) => n))
      expect(queue.waitingBytes()).toBe(0)
    }),
    { numRuns: 50 },
  )
})

it('a chunk queue gives at one step what waited together, and what came in the tick that woke the reader', async () => {
  const queue = createChunkQueue(() => {})
  const reader = queue.batches[Symbol.asyncIterator]()
  const woken = reader.next()
  queue.push([{ n: 1 }], 10)
  queue.push([{ n: 2 }, { n: 3 }], 20)
  expect((await woken).value).toEqual({ chunks: [{ n: 1 }, { n: 2 }, { n: 3 }], bytes: 30 })
  queue.push([{ n: 4 }], 5)
  queue.push([], 7)
  queue.push([{ n: 5 }], 5)
  // What came to nothing is counted with what came of it later, and does not wait for the reader.
  expect(queue.waitingBytes()).toBe(10)
  expect((await reader.next()).value).toEqual({ chunks: [{ n: 4 }, { n: 5 }], bytes: 17 })
})

it('a chunk queue gives no more at one step than a slow reader can write in time', async () => {
  const queue = createChunkQueue(() => {})
  const bytes = 1_000
  for (let n = 0; n < 1_000; n++) queue.push([{ n }], bytes)
  queue.end(null)
  const sizes: number[] = []
  const got: unknown[] = []
  for await (const batch of queue.batches) {
    sizes.push(batch.bytes)
    got.push(...batch.chunks.map(({ n }) => n))
    expect(queue.waitingBytes()).toBe((1_000 - got.length) * bytes)
  }
  expect(got).toEqual(Array.from({ length: 1_000 }, (_, n) => n))
  expect(Math.max(...sizes)).toBeLessThan(BATCH_BYTES_MAX + bytes)
})

it('a chunk queue counts frames without chunks until a chunk comes', () => {
  const queue = createChunkQueue(() => {})
  queue.push([], 7)
  queue.push([], 8)
  expect([queue.silentBytes(), queue.waitingBytes()]).toEqual([15, 0])
  queue.push([{ n: 1 }], 1)
  expect([queue.silentBytes(), queue.waitingBytes()]).toEqual([0, 1])
})

it('a chunk queue throws at once when what woke the reader is discarded before the reader went on', async () => {
  const queue = createChunkQueue(() => {})
  const woken = queue.batches[Symbol.asyncIterator]().next()
  queue.push([{ n: 1 }], 1)
  queue.discard(new Error('left'))
  await expect(woken).rejects.toThrow('left')
})

it('a chunk queue gives what waits before it throws', async () => {
  const queue = createChunkQueue(() => {})
  queue.push([{ n: 1 }], 1)
  queue.end(new Error('broken off'))
  const reader = queue.batches[Symbol.asyncIterator]()
  expect(await reader.next()).toEqual({ done: false, value: { chunks: [{ n: 1 }], bytes: 1 } })
  await expect(reader.next()).rejects.toThrow('broken off')
})

it('a chunk queue wakes a reader who waits', async () => {
  const failing = createChunkQueue(() => {})
  const waiting = collect(failing.batches)
  failing.end(new Error('broken off'))
  await expect(waiting).rejects.toThrow('broken off')
  const ending = createChunkQueue(() => {})
  const done = collect(ending.batches)
  ending.end(null)
  expect(await done).toEqual([])
})

it('a chunk queue reports that the reader left early, and not that it read to the end', async () => {
  let left = 0
  const early = createChunkQueue(() => left++)
  early.push([{ n: 1 }], 1)
  for await (const _ of early.batches) break
  expect(left).toBe(1)
  const whole = createChunkQueue(() => left++)
  whole.end(null)
  await collect(whole.batches)
  expect(left).toBe(1)
})

it('a chunk queue takes nothing more after its end', async () => {
  const queue = createChunkQueue(() => {})
  queue.end(null)
  queue.push([{ n: 1 }], 1)
  queue.end(new Error('late'))
  expect(await collect(queue.batches)).toEqual([])
})

it('a chunk queue refuses a second reader at the same time', async () => {
  const reader = createChunkQueue(() => {}).batches[Symbol.asyncIterator]()
  void reader.next()
  await expect(reader.next()).rejects.toThrow(TypeError)
})
