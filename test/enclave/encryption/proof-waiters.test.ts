import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createProofWaiters, PROOF_TIMEOUT_MS } from '#enclave/encryption/proof-waiters.ts'
import { proofOf } from '../support/encrypted-calls.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  vi.useRealTimers()
})

describe('calls that wait for their proof', () => {
  it('each waiting call gets its own proof, once', async () => {
    const waiters = createProofWaiters()
    const [first, second] = ['1', '2'].map((call) => waiters.open(call))
    expect(waiters.give(proofOf('2'))).toBe(true)
    expect(waiters.give(proofOf('2'))).toBe(false)
    expect(await second).toEqual(proofOf('2'))
    expect(await Promise.race([first, Promise.resolve('waits')])).toBe('waits')
  })

  it('a call that waits for its proof is late after 90 s, and then waits no more', async () => {
    const waiters = createProofWaiters()
    const proof = waiters.open('1')
    vi.advanceTimersByTime(PROOF_TIMEOUT_MS - 1)
    expect(await Promise.race([proof, Promise.resolve('waits')])).toBe('waits')
    vi.advanceTimersByTime(1)
    expect(await proof).toBe('late')
    expect(waiters.give(proofOf('1'))).toBe(false)
  })

  it('calls that wait for their proof leave nothing behind, however they end', async () => {
    const waiters = createProofWaiters()
    void waiters.open('1')
    const forgotten = waiters.open('2')
    waiters.give(proofOf('1'))
    waiters.forget('2')
    waiters.forget('2')
    expect(await forgotten).toBe('gone')
    expect(waiters.give(proofOf('2'))).toBe(false)
    expect(vi.getTimerCount()).toBe(0)
  })

  it('waiting calls are not found by property names that every object has', () => {
    const waiters = createProofWaiters()
    for (const call of ['__proto__', 'constructor', ''])
      expect(waiters.give(proofOf(call))).toBe(false)
  })
})
