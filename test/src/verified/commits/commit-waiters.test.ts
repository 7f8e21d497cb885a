import { describe, expect, it } from 'vitest'
import { CommitWaiters } from '#src/verified/commits/commit-waiters.ts'
import type { AnsweredRecord } from '#src/verified/records/records-store.ts'

const record = { hash: 'of a record' } as AnsweredRecord
const leaf = (index: number) => ({ index, given: null })
const never = new AbortController().signal

/** A signal that counts the listeners it has. */
function countListeners() {
  const controller = new AbortController()
  const { signal } = controller
  let listeners = 0
  const add = signal.addEventListener.bind(signal)
  const remove = signal.removeEventListener.bind(signal)
  signal.addEventListener = (...call: Parameters<typeof add>) => {
    listeners++
    add(...call)
  }
  signal.removeEventListener = (...call: Parameters<typeof remove>) => {
    listeners--
    remove(...call)
  }
  return { controller, signal, listeners: () => listeners }
}

describe('commit waiters', () => {
  it('a record is given to everybody who waits for that leaf, and to nobody else', async () => {
    const waiters = new CommitWaiters()
    const first = waiters.add('log', leaf(1), never)
    const second = waiters.add('log', leaf(1), never)
    waiters.add('log', leaf(2), never)
    waiters.add('other log', leaf(1), never)
    for (const waiter of waiters.of('log', 1)) waiter.resolve(record)
    expect(await first.record).toBe(record)
    expect(await second.record).toBe(record)
    expect(waiters.count).toBe(2)
    expect(waiters.of('log', 1)).toEqual([])
  })

  it('a waiter rejects with the reason of the signal', async () => {
    const waiters = new CommitWaiters()
    const controller = new AbortController()
    const { record: waiting } = waiters.add('log', leaf(1), controller.signal)
    const reason = new Error('enough')
    controller.abort(reason)
    await expect(waiting).rejects.toBe(reason)
    expect(waiters.count).toBe(0)
    expect(waiters.of('log', 1)).toEqual([])
  })

  it('a waiter rejects at once when the signal was aborted before', async () => {
    const waiters = new CommitWaiters()
    const { record: waiting } = waiters.add(
      'log',
      leaf(1),
      AbortSignal.abort(new Error('too late')),
    )
    await expect(waiting).rejects.toThrow('too late')
    expect(waiters.count).toBe(0)
  })

  it.each(['resolved', 'rejected', 'aborted'])(
    'a waiter leaves no listener behind when %s',
    async (how) => {
      const waiters = new CommitWaiters()
      const { controller, signal, listeners } = countListeners()
      const { waiter, record: waiting } = waiters.add('log', leaf(1), signal)
      expect(listeners()).toBe(1)
      if (how === 'resolved') waiter.resolve(record)
      else if (how === 'rejected') waiter.reject(new Error('no'))
      else controller.abort(new Error('no'))
      await waiting.catch(() => {})
      expect(listeners()).toBe(0)
      expect(waiters.all()).toEqual([])
    },
  )

  it('each waiter is ended once', async () => {
    const waiters = new CommitWaiters()
    const { waiter, record: waiting } = waiters.add('log', leaf(1), never)
    waiter.resolve(record)
    waiter.reject(new Error('later'))
    expect(await waiting).toBe(record)
  })

  it('all waiters are given their records in the order they came', () => {
    const waiters = new CommitWaiters()
    const added = [3, 1, 2].map((index) => waiters.add('log', leaf(index), never).waiter)
    expect(waiters.all()).toEqual(added)
  })
})
