import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { JsonObject } from '../../../attestation/json/value.ts'
import { createChunkQueue } from '../../../src/nodes/chunk-queue.ts'

async function collect(chunks: AsyncIterable<JsonObject>): Promise<readonly unknown[]> {
  const got: unknown[] = []
  for await (const { n } of chunks) got.push(n)
  return got
}

describe('a chunk queue', () => {
  it('gives everything in order, however pushing and reading interleave', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.boolean(), { maxLength: 60 }), async (pauses) => {
        const queue = createChunkQueue(() => {})
        const read = collect(queue.chunks)
        for (const [n, pause] of pauses.entries()) {
          queue.push({ n }, 1)
          if (pause) await new Promise((resolve) => setImmediate(resolve))
        }
        queue.end(null)
        expect(await read).toEqual(pauses.map((_, n) => n))
        expect(queue.waitingBytes()).toBe(0)
      }),
      { numRuns: 50 },
    )
  })

  it('keeps the order when the reader never catches up', async () => {
    const queue = createChunkQueue(() => {})
    const reader = queue.chunks[Symbol.asyncIterator]()
    const got: unknown[] = []
    for (let n = 0; n < 1_000; n++) {
      queue.push({ n: 2 * n }, 1)
      queue.push({ n: 2 * n + 1 }, 1)
      got.push((await reader.next()).value?.n)
    }
    queue.end(null)
    got.push(...(await collect(queue.chunks)))
    expect(got).toEqual(Array.from({ length: 2_000 }, (_, n) => n))
  })

  it('counts the bytes that wait', async () => {
    const queue = createChunkQueue(() => {})
    const reader = queue.chunks[Symbol.asyncIterator]()
    queue.push({ n: 1 }, 10)
    queue.push({ n: 2 }, 20)
    expect(queue.waitingBytes()).toBe(30)
    await reader.next()
    expect(queue.waitingBytes()).toBe(20)
  })

  it('gives what waits before it throws', async () => {
    const queue = createChunkQueue(() => {})
    queue.push({ n: 1 }, 1)
    queue.end(new Error('broken off'))
    const reader = queue.chunks[Symbol.asyncIterator]()
    expect(await reader.next()).toEqual({ done: false, value: { n: 1 } })
    await expect(reader.next()).rejects.toThrow('broken off')
  })

  it('throws at once when what waits is discarded', async () => {
    const queue = createChunkQueue(() => {})
    queue.push({ n: 1 }, 1)
    queue.discard(new Error('left'))
    await expect(collect(queue.chunks)).rejects.toThrow('left')
    expect(queue.waitingBytes()).toBe(0)
  })

  it('wakes a reader who waits', async () => {
    const failing = createChunkQueue(() => {})
    const waiting = collect(failing.chunks)
    failing.end(new Error('broken off'))
    await expect(waiting).rejects.toThrow('broken off')
    const ending = createChunkQueue(() => {})
    const done = collect(ending.chunks)
    ending.end(null)
    expect(await done).toEqual([])
  })

  it('tells when the reader leaves early, and not when it read to the end', async () => {
    let left = 0
    const early = createChunkQueue(() => left++)
    early.push({ n: 1 }, 1)
    for await (const _ of early.chunks) break
    expect(left).toBe(1)
    const whole = createChunkQueue(() => left++)
    whole.end(null)
    await collect(whole.chunks)
    expect(left).toBe(1)
  })

  it('takes nothing more after its end', async () => {
    const queue = createChunkQueue(() => {})
    queue.end(null)
    queue.push({ n: 1 }, 1)
    queue.end(new Error('late'))
    expect(await collect(queue.chunks)).toEqual([])
  })

  it('refuses a second reader at the same time', async () => {
    const reader = createChunkQueue(() => {}).chunks[Symbol.asyncIterator]()
    void reader.next()
    await expect(reader.next()).rejects.toThrow(TypeError)
  })
})
