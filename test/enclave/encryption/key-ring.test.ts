import { randomBytes } from 'node:crypto'
import { setImmediate as nextTick } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { verifyEncryptionKey } from '#attestation/verify-encryption-key.ts'
import {
  KEYS_MAX,
  type KeyRing,
  LIFETIME_MS,
  openKeyRing,
  ROTATION_MS,
} from '#enclave/encryption/key-ring.ts'
import { makeAccount, type NotaryAccount } from '#enclave/notary-key.ts'
import { DOMAIN } from '../support/test-enclave.ts'

const BEGAN_AT_MS = 1_800_000_000_000
const HOUR = 3_600_000

let account: NotaryAccount
let ring: KeyRing | undefined
/** What the security module gave, as long as it gives. */
let drawn: Uint8Array[]
let fails: boolean
let logged: string[]

beforeEach(async () => {
  vi.useFakeTimers({ now: BEGAN_AT_MS, toFake: ['setTimeout', 'clearTimeout', 'Date'] })
  account = await makeAccount(async (length) => new Uint8Array(randomBytes(length)))
  drawn = []
  fails = false
  logged = []
})

afterEach(() => {
  ring?.stop()
  vi.useRealTimers()
})

const random = async (length: number) => {
  if (fails) throw new Error('no randomness')
  const bytes = new Uint8Array(randomBytes(length))
  drawn.push(bytes)
  return bytes
}

async function open(
  more: {
    readonly seenMax?: number
    readonly random?: typeof random
    readonly now?: () => number
  } = {},
) {
  ring = await openKeyRing({
    random,
    account,
    domain: DOMAIN,
    now: Date.now,
    monotonic: Date.now,
    log: (level, event, facts) => logged.push(JSON.stringify({ level, event, ...facts })),
    ...more,
  })
  return ring
}

/** Passes the time. The ring wakes every 5 s: of a longer time, only the last 20 s pass by timers. */
async function pass(ms: number): Promise<void> {
  const lastMs = Math.min(ms, 20_000)
  vi.setSystemTime(Date.now() + ms - lastMs)
  await vi.advanceTimersByTimeAsync(lastMs)
}
const publicKeys = () => ring?.statements().map((key) => key.public_key) ?? []
const isErased = (bytes: Uint8Array) => bytes.every((byte) => byte === 0)
/** Secrets that are not overwritten: of each key, the first that was drawn. */
const secretsLeft = () => drawn.filter((bytes, index) => index % 2 === 0 && !isErased(bytes)).length

describe('the ring of keys', () => {
  it('the key ring has keys that the notary vouches for, usable now and for two hours', async () => {
    const opened = await open()
    const [key] = opened.statements()
    if (key === undefined) throw new Error('expected a key')
    const signed = { key, domain: DOMAIN, notary: account.notary }
    const publicKey = verifyEncryptionKey({ ...signed, atMs: Date.now() })
    expect(Buffer.from(publicKey)).toEqual(Buffer.from(opened.keys()[0]?.publicKey ?? []))
    expect(key.not_after - key.not_before).toBe(LIFETIME_MS / 1000)
    // A clock that is a minute slow, and a call that is on its way for a minute.
    verifyEncryptionKey({ ...signed, atMs: Date.now() - 60_000 })
    expect(() => verifyEncryptionKey({ ...signed, atMs: Date.now() - 60_001 })).toThrow()
    await pass(LIFETIME_MS - 60_000)
    expect(() => verifyEncryptionKey({ ...signed, atMs: Date.now() })).toThrow()
    expect(publicKeys()).toContain(key.public_key)
    const changed = { ...key, not_after: key.not_after - 1 }
    expect(() => verifyEncryptionKey({ ...signed, key: changed, atMs: Date.now() })).toThrow()
    expect(() =>
      verifyEncryptionKey({ ...signed, notary: `0x${'00'.repeat(20)}`, atMs: Date.now() }),
    ).toThrow()
  })

  it('the key ring has a new key each hour, two that overlap, and erases the third', async () => {
    await open()
    const [first] = publicKeys()
    await pass(ROTATION_MS - 1)
    expect(publicKeys()).toEqual([first])
    await pass(1)
    const [second] = publicKeys()
    expect(publicKeys()).toEqual([second, first])
    expect(second).not.toBe(first)
    await pass(HOUR - 1)
    expect(secretsLeft()).toBe(2)
    await pass(1)
    expect(publicKeys()).toHaveLength(2)
    expect(publicKeys()).not.toContain(first)
    expect(secretsLeft()).toBe(2)
    for (let hour = 0; hour < 24; hour++) await pass(HOUR)
    expect(publicKeys()).toHaveLength(2)
    expect(secretsLeft()).toBe(2)
    expect(logged).toHaveLength(27)
  })

  it('the key ring tries again soon when no key could be made, and logs the failure', async () => {
    await open()
    fails = true
    await pass(ROTATION_MS + 12_000)
    expect(logged.filter((line) => line.includes('not made'))).toHaveLength(3)
    expect(publicKeys()).toHaveLength(1)
    fails = false
    await pass(5_000)
    expect(publicKeys()).toHaveLength(2)
    await pass(HOUR)
    expect(publicKeys()).toHaveLength(2)
    expect(logged.join()).not.toContain(Buffer.from(drawn[0] ?? []).toString('hex'))
  })

  it.each([-3 * HOUR, HOUR, 61_000])(
    'the key ring has a key that is usable soon after a clock that was %i ms ahead is set right',
    async (startMs) => {
      let aheadMs = startMs
      await open({ now: () => Date.now() + aheadMs })
      const [first] = publicKeys()
      aheadMs = 0
      fails = true
      await pass(12_000)
      fails = false
      await pass(5_000)
      const [key] = ring?.statements() ?? []
      if (key === undefined) throw new Error('expected a key')
      verifyEncryptionKey({ key, domain: DOMAIN, notary: account.notary, atMs: Date.now() })
      expect(publicKeys()).toEqual([key.public_key, first])
      expect(logged.filter((line) => line.includes('not made'))).toHaveLength(2)
      await pass(ROTATION_MS - 5_000)
      expect(publicKeys()[0]).toBe(key.public_key)
    },
  )

  it('the key ring erases the secret when the rest of the key cannot be had', async () => {
    const half = async (length: number) => {
      if (drawn.length === 1) throw new Error('no more')
      return random(length)
    }
    await expect(open({ random: half })).rejects.toThrow('no more')
    expect(drawn).toHaveLength(1)
    expect(secretsLeft()).toBe(0)
  })

  it('the key ring erases all keys when it stops, also a key that is being made', async () => {
    const opened = await open()
    await pass(ROTATION_MS)
    expect(secretsLeft()).toBe(2)
    opened.stop()
    expect(secretsLeft()).toBe(0)
    expect(opened.keys()).toEqual([])
    expect(opened.statements()).toEqual([])
    let give = () => {}
    const slow = async (length: number) => {
      if (drawn.length >= 6)
        await new Promise<void>((resolve) => {
          give = resolve
        })
      return random(length)
    }
    const other = await open({ random: slow })
    await pass(ROTATION_MS)
    expect(drawn).toHaveLength(6)
    other.stop()
    give()
    await nextTick()
    give()
    await nextTick()
    expect(secretsLeft()).toBe(0)
    expect(vi.getTimerCount()).toBe(0)
  })
})

describe('encapsulated keys', () => {
  it('encapsulated keys make one new key before the memory is full, also while the old one is used on', async () => {
    const opened = await open({ seenMax: 100 })
    const [key] = opened.keys()
    for (let count = 0; count < 75; count++) key?.take(randomBytes(32))
    await pass(0)
    expect(publicKeys()).toHaveLength(1)
    key?.take(randomBytes(32))
    await pass(0)
    expect(publicKeys()).toHaveLength(2)
    for (let count = 0; count < 23; count++) {
      key?.take(randomBytes(32))
      await pass(0)
    }
    expect(publicKeys()).toHaveLength(2)
  })

  it('a key whose memory of encapsulated keys is full is no longer offered', async () => {
    const opened = await open({ seenMax: 4 })
    fails = true
    const [key] = opened.keys()
    for (let count = 0; count < 4; count++) key?.take(randomBytes(32))
    await pass(0)
    expect(opened.keys()).toEqual([])
    expect(opened.statements()).toEqual([])
    fails = false
    await pass(5_000)
    expect(opened.keys()).toHaveLength(1)
  })

  it('floods of encapsulated keys leave no more keys than allowed, and the others are erased', async () => {
    const opened = await open({ seenMax: 4 })
    for (let round = 0; round < 20; round++) {
      for (let count = 0; count < 4; count++) opened.keys()[0]?.take(randomBytes(32))
      await pass(0)
    }
    expect(drawn.length / 2).toBeGreaterThan(10)
    expect(secretsLeft()).toBeLessThanOrEqual(KEYS_MAX)
    expect(opened.keys().length).toBeGreaterThan(0)
  })
})
