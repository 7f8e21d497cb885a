import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type { StoredKey } from '#src/accounts/keys-store.ts'
import { createKnownKeys, KEY_AGE_MAX_MS } from '#src/accounts/known-keys.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

it('a key that is in use is looked up before its time is over, so that no call waits', async () => {
  const { find, store } = setUp(['one'])
  await find('one')
  await pass(KEY_AGE_MAX_MS * 3)
  expect(await find('one')).toMatchObject({ id: 'one' })
  expect(store.findKey).toHaveBeenCalledTimes(1)
  expect(store.findKeys.mock.calls.length).toBeGreaterThanOrEqual(3)
})

it('a key that is revoked while it is in use is known for half a second at most', async () => {
  const { find, stored } = setUp(['one'])
  await find('one')
  for (let waitedMs = 0; waitedMs < 700; waitedMs += 50) {
    await pass(50)
    await find('one')
  }
  stored.set('one', { ...keyOf('one'), revokedAt: 1 })
  await pass(KEY_AGE_MAX_MS)
  expect(await find('one')).toMatchObject({ revokedAt: 1 })
})

it('a key that is gone is known as such, and looked up by itself no more', async () => {
  const { find, stored, store } = setUp(['one'])
  await find('one')
  stored.clear()
  await pass(KEY_AGE_MAX_MS)
  expect(await find('one')).toBeNull()
  const count = store.findKeys.mock.calls.length
  await pass(KEY_AGE_MAX_MS * 4)
  expect(store.findKeys).toHaveBeenCalledTimes(count)
})

it('a key in use is known for no longer when the lookup hangs, and its calls ask for themselves', async () => {
  const { find, store } = setUp(['one'])
  await find('one')
  store.findKeys.mockReturnValue(new Promise(() => undefined))
  await pass(KEY_AGE_MAX_MS)
  await find('one')
  expect(store.findKey).toHaveBeenCalledTimes(2)
  await pass(KEY_AGE_MAX_MS)
  await find('one')
  expect(store.findKey).toHaveBeenCalledTimes(3)
  expect(store.findKeys).toHaveBeenCalledTimes(1)
})

it('a key in use is known for no longer when the lookup fails, and a later lookup serves again', async () => {
  const { find, store } = setUp(['one'])
  await find('one')
  store.findKeys.mockRejectedValueOnce(new Error('connection refused'))
  await pass(KEY_AGE_MAX_MS)
  await find('one')
  expect(store.findKey).toHaveBeenCalledTimes(2)
  await pass(KEY_AGE_MAX_MS)
  await find('one')
  expect(store.findKey).toHaveBeenCalledTimes(2)
})

it('a key that is in use is not overwritten by an older answer that comes late', async () => {
  const { find, store, stored } = setUp(['one'])
  await find('one')
  const late = Promise.withResolvers<readonly StoredKey[]>()
  store.findKeys.mockReturnValueOnce(late.promise)
  await pass(KEY_AGE_MAX_MS)
  stored.set('one', { ...keyOf('one'), revokedAt: 1 })
  expect(await find('one')).toMatchObject({ revokedAt: 1 })
  late.resolve([keyOf('one')])
  await pass(0)
  expect(await find('one')).toMatchObject({ revokedAt: 1 })
})

it('a key that is not in use is looked up no more, and leaves no timer', async () => {
  const { find, store } = setUp(['one'])
  await find('one')
  await pass(10_000)
  const count = store.findKeys.mock.calls.length
  expect(count).toBeLessThan(8)
  await pass(60_000)
  expect(store.findKeys).toHaveBeenCalledTimes(count)
  expect(vi.getTimerCount()).toBe(0)
  await find('one')
  expect(store.findKey).toHaveBeenCalledTimes(2)
})

it('a key that was made up costs no lookup', async () => {
  const { find, store } = setUp([])
  for (let index = 0; index < 100; index++) await find(`made up ${index}`)
  await pass(10_000)
  expect(store.findKeys).not.toHaveBeenCalled()
  expect(vi.getTimerCount()).toBe(0)
})

function setUp(ids: readonly string[]) {
  const stored = new Map(ids.map((id) => [id, keyOf(id)]))
  const store = {
    findKey: vi.fn(async (id: string) => stored.get(id) ?? null),
    findKeys: vi.fn(
      async (wanted: readonly string[]): Promise<readonly StoredKey[]> =>
        wanted.flatMap((id) => stored.get(id) ?? []),
    ),
  }
  return { stored, store, find: createKnownKeys(store, () => performance.now()) }
}

/** Lets the time pass; the fake clock moves performance.now, too. */
async function pass(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms)
}

function keyOf(id: string): StoredKey {
  return {
    id,
    accountId: 'account',
    accountName: 'acme',
    secretHash: new Uint8Array(32),
    name: 'ci',
    createdAt: 0,
    revokedAt: null,
    scopes: ['inference'],
    expiresAt: null,
    lastUsedAt: null,
    createdBy: null,
    tier: null,
    isDisabled: false,
    isBudgeted: false,
  }
}
