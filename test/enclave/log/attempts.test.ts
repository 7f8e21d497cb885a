import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { createAttempts, GENERATION_MIN_MS, GENERATION_MS } from '#enclave/log/attempts.ts'

const digestOf = (name: string | number) => createHash('sha256').update(String(name)).digest()

function attempts(requestsMax?: number) {
  const clock = { ms: 5 }
  const counted = createAttempts({
    key: new Uint8Array(16),
    monotonic: () => clock.ms,
    ...(requestsMax === undefined ? {} : { requestsMax }),
  })
  return { clock, ask: (name: string | number) => counted.count(digestOf(name)) }
}

describe('createAttempts', () => {
  it('createAttempts keeps every count while the table grows', () => {
    const { ask } = attempts()
    for (let round = 1; round <= 3; round++)
      for (let name = 0; name < 20_000; name++)
        if (ask(name) !== round) throw new Error(`expected ${round} for ${name}`)
    expect(ask(19_999)).toBe(4)
  })

  it('createAttempts remembers a request over a change of generations, at least as long as one lasts', () => {
    const { clock, ask } = attempts()
    ask('a')
    clock.ms += GENERATION_MS
    expect(ask('a')).toBe(2)
    clock.ms += GENERATION_MS - 1
    expect(ask('a')).toBe(3)
  })

  it('createAttempts forgets a request that was not asked for during two generations', () => {
    const { clock, ask } = attempts()
    ask('a')
    for (const name of ['b', 'c']) {
      clock.ms += GENERATION_MS
      ask(name)
    }
    expect(ask('a')).toBe(1)
  })

  it('createAttempts takes no new request rather than forget one of the last hour', () => {
    const { clock, ask } = attempts(2)
    expect([ask('a'), ask('b'), ask('c')]).toEqual([1, 1, null])
    expect(ask('a')).toBe(2)
    clock.ms += GENERATION_MIN_MS - 1
    expect(ask('c')).toBe(null)
    clock.ms += 1
    expect([ask('c'), ask('d'), ask('a')]).toEqual([1, 1, null])
    expect(ask('c')).toBe(2)
  })

  it('createAttempts counts requests by all of their digest, and apart for each key', () => {
    const one = createAttempts({ key: new Uint8Array(16).fill(1), monotonic: () => 0 })
    const digest = digestOf('a')
    one.count(digest)
    const other = Uint8Array.from(digest)
    other[31] = (other[31] ?? 0) ^ 1
    expect(one.count(other)).toBe(1)
  })
})
