import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createProofWaiters, PROOF_TIMEOUT_MS } from '../../../enclave/encryption/proof-waiters.ts'
import { proofOf } from '../support/encrypted-calls.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  vi.useRealTimers()
})

describe('calls that wait for their proof', () => {
  it('each waiting call gets its own proof, once, under an id that is not a count', async () => {
    const waiters = createProofWaiters()
    const calls = Array.from({ length: 100 }, () => waiters.open())
    expect(new Set(calls.map(({ call }) => call)).size).toBe(100)
    for (const { call } of calls) expect(call).toMatch(/^[0-9a-f]{32}$/)
    const [first, second] = calls
    if (first === undefined || second === undefined) throw new Error('expected two')
    expect(waiters.give(proofOf(second.call))).toBe(true)
    expect(waiters.give(proofOf(second.call))).toBe(false)
    expect(await second.proof).toEqual(proofOf(second.call))
    expect(await Promise.race([first.proof, Promise.resolve('waits')])).toBe('waits')
  })

  it('a call that waits for its proof is late after 90 s, and then waits no more', async () => {
    const waiters = createProofWaiters()
    const { call, proof } = waiters.open()
    vi.advanceTimersByTime(PROOF_TIMEOUT_MS - 1)
    expect(await Promise.race([proof, Promise.resolve('waits')])).toBe('waits')
    vi.advanceTimersByTime(1)
    expect(await proof).toBe('late')
    expect(waiters.give(proofOf(call))).toBe(false)
  })

  it('calls that wait for their proof leave nothing behind, however they end', async () => {
    const waiters = createProofWaiters()
    const [given, forgotten] = [waiters.open(), waiters.open()]
    waiters.give(proofOf(given.call))
    waiters.forget(forgotten.call)
    waiters.forget(forgotten.call)
    expect(await forgotten.proof).toBe('gone')
    expect(waiters.give(proofOf(forgotten.call))).toBe(false)
    expect(vi.getTimerCount()).toBe(0)
  })

  it('waiting calls are not found by property names that every object has', () => {
    const waiters = createProofWaiters()
    for (const call of ['__proto__', 'constructor', ''])
      expect(waiters.give(proofOf(call))).toBe(false)
  })
})
