import { expect, it } from 'vitest'
import { CommitWaiters } from '#src/verified/commits/commit-waiters.ts'
import type { AnsweredRecord } from '#src/verified/records/records-store.ts'

const record = { hash: 'of a record' } as AnsweredRecord
const leaf = (index: number) => ({ index, given: null })

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
