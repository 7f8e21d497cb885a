import { describe, expect, it } from 'vitest'
import type { CompletionAnswer } from '../../../src/enclaves/enclave-client.ts'
import type { EnclaveEvent } from '../../../src/enclaves/enclave-events.ts'
import { trackCall } from '../../../src/enclaves/track-call.ts'

const notice = { notary: '0x01', index: 0, outcome: 'complete' } as const

function start(run: () => Promise<CompletionAnswer>) {
  const abort = new AbortController()
  const counts = { running: 0, ends: 0 }
  const errors: unknown[] = []
  const answer = trackCall(run, {
    signal: abort.signal,
    onBegin: () => {
      counts.running += 1
    },
    onEnd: () => {
      counts.running -= 1
      counts.ends += 1
    },
    onError: (error) => errors.push(error),
  })
  return { abort, counts, errors, answer }
}

async function* eventsOf(count: number, error?: Error): AsyncGenerator<EnclaveEvent> {
  for (let index = 0; index < count; index++) yield { kind: 'chunks', bytes: new Uint8Array() }
  if (error) throw error
}

const streamOf = (events: AsyncIterable<EnclaveEvent>) => async () => ({ kind: 'stream', events }) as const

async function read(answer: CompletionAnswer, max = Number.POSITIVE_INFINITY): Promise<number> {
  if (answer.kind !== 'stream') throw new Error(`expected a stream, got ${answer.kind}`)
  let count = 0
  for await (const _ of answer.events) if (++count >= max) break
  return count
}

describe('a call that is tracked', () => {
  it('ends with a whole answer', async () => {
    const { counts, answer } = start(async () => ({ kind: 'sealed', notice }))
    expect(counts.running).toBe(1)
    await answer
    expect(counts).toEqual({ running: 0, ends: 1 })
  })

  it('ends with its failure, which is told', async () => {
    const { counts, errors, answer } = start(() => Promise.reject(new Error('broken')))
    await expect(answer).rejects.toThrow('broken')
    expect([counts, errors]).toEqual([{ running: 0, ends: 1 }, [new Error('broken')]])
  })

  it('lasts as long as its stream is read', async () => {
    const { counts, answer } = start(streamOf(eventsOf(3)))
    const given = await answer
    expect(counts.running).toBe(1)
    expect(await read(given)).toBe(3)
    expect(counts).toEqual({ running: 0, ends: 1 })
  })

  it('ends when its stream is left, or breaks', async () => {
    const left = start(streamOf(eventsOf(3)))
    await read(await left.answer, 1)
    expect(left.counts).toEqual({ running: 0, ends: 1 })
    const broken = start(streamOf(eventsOf(1, new Error('broken'))))
    await expect(read(await broken.answer)).rejects.toThrow('broken')
    expect([broken.counts, broken.errors]).toEqual([{ running: 0, ends: 1 }, [new Error('broken')]])
  })

  it('ends once when it is aborted, also when nobody reads its stream', async () => {
    const { abort, counts, answer } = start(streamOf(eventsOf(3)))
    const given = await answer
    abort.abort()
    expect(counts).toEqual({ running: 0, ends: 1 })
    await read(given)
    expect(counts).toEqual({ running: 0, ends: 1 })
  })

  it('ends when it was aborted before it began', async () => {
    const abort = AbortSignal.abort()
    let ends = 0
    const run = async () => ({ kind: 'sealed', notice }) as const
    await trackCall(run, { signal: abort, onBegin: () => {}, onEnd: () => void ends++, onError: () => {} })
    expect(ends).toBe(1)
  })
})
