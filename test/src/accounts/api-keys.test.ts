import { createHash, randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { API_KEY_FORM, createApiKeys, KEYS_PER_ACCOUNT_MAX } from '#src/accounts/api-keys.ts'
import type { Account, KeysStore, StoredKey } from '#src/accounts/keys-store.ts'
import { KEY_AGE_MAX_MS, KEYS_CACHED_MAX } from '#src/accounts/known-keys.ts'
import { SCOPES } from '#src/api/context.ts'

const UNUSED = {
  revokedAt: null,
  lastUsedAt: null,
  tier: null,
  isDisabled: false,
  isBudgeted: false,
}

/** A keys store in memory that counts lookups; the real one has tests of its own. */
function createMemoryKeys() {
  const accounts = new Map<string, Account>()
  const stored = new Map<string, StoredKey>()
  const lookups: string[] = []
  const uses: (readonly [string, number])[] = []
  let failure: Error | null = null
  const keys: KeysStore = {
    async openAccount(account) {
      const known = accounts.get(account.name)
      const kept = known ?? { ...account, tier: null, disabledAt: null }
      accounts.set(account.name, kept)
      return { ...kept, isNew: known === undefined }
    },
    pageAccounts: async () => [...accounts.values()],
    findAccount: async (id) => [...accounts.values()].find((account) => account.id === id) ?? null,
    setTier: async () => false,
    setDisabled: async () => false,
    deleteAccount: async () => false,
    async addKey(key) {
      const account = [...accounts.values()].find(({ id }) => id === key.accountId)
      stored.set(key.id, { ...key, accountName: account?.name ?? '', ...UNUSED })
      return true
    },
    async findKey(id) {
      lookups.push(id)
      if (failure) throw failure
      return stored.get(id) ?? null
    },
    findKeys: async (ids) => ids.flatMap((id) => stored.get(id) ?? []),
    countKeys: async () => stored.size,
    listKeys: async (accountId) =>
      [...stored.values()].filter((key) => accountId === null || key.accountId === accountId),
    async revokeKey(id, { at }) {
      const key = stored.get(id)
      if (key) stored.set(id, { ...key, revokedAt: at })
      return key === undefined ? null : [id]
    },
    async recordUse(id, usedAt) {
      uses.push([id, usedAt])
      if (failure) throw failure
    },
  }
  return {
    keys,
    stored,
    lookups,
    uses,
    fail(error: Error | null) {
      failure = error
    },
  }
}

function setUp(fixedKey: { text: string; accountId: string } | null = null) {
  const memory = createMemoryKeys()
  const clock = { nowMs: 1_790_000_000_000, setMs: 0 }
  const apiKeys = createApiKeys({
    keys: memory.keys,
    // The clock may be set; the monotonic one goes on as before.
    now: () => clock.nowMs + clock.setMs,
    monotonic: () => clock.nowMs,
    random: randomBytes,
    fixedKey,
  })
  return { ...memory, clock, apiKeys }
}

it('API keys are made in the documented form, with 80 and 256 bits of the given randomness', async () => {
  const { keys } = createMemoryKeys()
  const lengths: number[] = []
  const random = (length: number) => {
    lengths.push(length)
    return new Uint8Array(length).fill(0xff)
  }
  const { text, key } = await createApiKeys({ keys, now: () => 5000, random }).create({
    accountName: 'acme',
    name: 'ci',
  })
  expect(text).toBe(`afd_${'7'.repeat(16)}_${'_'.repeat(42)}8`)
  expect(text).toMatch(API_KEY_FORM)
  expect(lengths).toEqual([10, 32])
  expect(key).toMatchObject({
    id: '7'.repeat(16),
    accountName: 'acme',
    name: 'ci',
    createdAt: 5,
    revokedAt: null,
  })
})

it('API keys are stored as the SHA-256 of their text only', async () => {
  const { apiKeys, stored } = setUp()
  const { text, key } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
  expect(stored.get(key.id)?.secretHash).toEqual(createHash('sha256').update(text).digest())
  expect(JSON.stringify([...stored])).not.toContain(text.slice(-43))
  expect(JSON.stringify(await apiKeys.list())).not.toContain('secretHash')
})

it('an API key identifies its account', async () => {
  const { apiKeys } = setUp()
  const { text, key } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
  expect(await apiKeys.authenticate(text)).toEqual({
    accountId: key.accountId,
    keyId: key.id,
    scopes: ['inference', 'nodes', 'keys'],
    tier: null,
    expiresAt: null,
    isBudgeted: false,
  })
})

it('an API key is refused with any character changed', async () => {
  const { apiKeys } = setUp()
  const { text } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
  for (let at = 0; at < text.length; at++) {
    const changed = `${text.slice(0, at)}${text[at] === 'a' ? 'b' : 'a'}${text.slice(at + 1)}`
    expect(await apiKeys.authenticate(changed), `character ${at}`).toBeNull()
  }
})

it.each([
  ['nothing', () => ''],
  ['a blank after it', (text: string) => `${text} `],
  ['a line break after it', (text: string) => `${text}\n`],
  ['only its public id', (text: string) => text.slice(0, 20)],
  ['upper case', (text: string) => text.toUpperCase()],
  ['a megabyte', (text: string) => text + 'a'.repeat(1_000_000)],
])('an API key with %s in its place is refused without asking the database', async (_, change) => {
  const { apiKeys, lookups } = setUp()
  const { text } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
  expect(await apiKeys.authenticate(change(text))).toBeNull()
  expect(lookups).toEqual([])
})

it('a revoked API key stops being taken within half a second', async () => {
  const { apiKeys, clock } = setUp()
  const { text, key } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
  expect(await apiKeys.authenticate(text)).not.toBeNull()
  expect(await apiKeys.revoke(key.id)).toEqual([key.id])
  clock.nowMs += KEY_AGE_MAX_MS
  expect(KEY_AGE_MAX_MS).toBeLessThanOrEqual(500)
  expect(await apiKeys.authenticate(text)).toBeNull()
})

it.each([
  ['forward', 3_600_000],
  ['back', -3_600_000],
])(
  'a revoked API key stops being taken as soon when the clock is set %s meanwhile',
  async (_, setMs) => {
    const { apiKeys, clock } = setUp()
    const { text, key } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
    expect(await apiKeys.authenticate(text)).not.toBeNull()
    expect(await apiKeys.revoke(key.id)).toEqual([key.id])
    clock.setMs = setMs
    clock.nowMs += KEY_AGE_MAX_MS
    expect(await apiKeys.authenticate(text)).toBeNull()
  },
)

it('an API key costs one lookup for all calls of half a second', async () => {
  const { apiKeys, lookups, clock } = setUp()
  const { text } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
  await Promise.all(Array.from({ length: 100 }, () => apiKeys.authenticate(text)))
  clock.nowMs += KEY_AGE_MAX_MS - 1
  await apiKeys.authenticate(text)
  expect(lookups).toHaveLength(1)
})

it('API keys that are made up fill no more than the cache', async () => {
  const { apiKeys, lookups } = setUp()
  const { text } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
  await apiKeys.authenticate(text)
  const made = (index: number) =>
    index.toString(2).padStart(16, '0').replaceAll('0', 'a').replaceAll('1', 'b')
  for (let index = 0; index < KEYS_CACHED_MAX; index++)
    await apiKeys.authenticate(`afd_${made(index)}_${'a'.repeat(43)}`)
  await apiKeys.authenticate(text)
  expect(lookups).toHaveLength(KEYS_CACHED_MAX + 2)
})

it('a fixed API key of any form may stand beside the stored ones', async () => {
  const accountId = crypto.randomUUID()
  const { apiKeys } = setUp({ text: 'my development key', accountId })
  expect(await apiKeys.authenticate('my development key')).toEqual({
    accountId,
    keyId: 'fixed',
    scopes: SCOPES,
    tier: null,
    expiresAt: null,
    isBudgeted: false,
  })
  expect(await apiKeys.authenticate('my development kez')).toBeNull()
})

it('an API key ends at the moment that was asked for, however long it was remembered', async () => {
  const { apiKeys, clock } = setUp()
  const expiresAt = clock.nowMs / 1000 + 1
  const { text } = await apiKeys.create({ accountName: 'acme', name: 'ci', expiresAt })
  clock.nowMs += 999
  expect(await apiKeys.authenticate(text)).toMatchObject({ expiresAt })
  clock.nowMs += 1
  expect(await apiKeys.authenticate(text)).toBeNull()
})

it('an account gets no more API keys than it may have, those that ended within a day included', async () => {
  const { apiKeys, keys, clock } = setUp()
  const counted: number[] = []
  let count = KEYS_PER_ACCOUNT_MAX
  keys.countKeys = async (_, endedSince) => {
    counted.push(endedSince)
    return count
  }
  const { id } = await apiKeys.openAccount('acme')
  expect(await apiKeys.createFor(id, { name: 'ci' })).toBe('too_many')
  expect(counted).toEqual([clock.nowMs / 1000 - 24 * 3_600])
  count--
  expect(await apiKeys.createFor(id, { name: 'ci' })).toMatchObject({ key: { name: 'ci' } })
})

it('the use of a valid API key is noted once a minute, and that of an invalid one never', async () => {
  const { apiKeys, clock, uses } = setUp()
  const { text, key } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
  await apiKeys.authenticate(`${text.slice(0, -1)}${text.endsWith('A') ? 'E' : 'A'}`)
  expect(uses).toEqual([])
  const startMs = clock.nowMs
  for (clock.nowMs = startMs; clock.nowMs < startMs + 120_000; clock.nowMs += 100)
    await apiKeys.authenticate(text)
  expect(uses).toEqual([
    [key.id, startMs / 1000],
    [key.id, startMs / 1000 + 60],
  ])
})

it('an API key is taken although its use cannot be noted', async () => {
  const { apiKeys, fail } = setUp()
  const { text } = await apiKeys.create({ accountName: 'acme', name: 'ci' })
  const answer = apiKeys.authenticate(text)
  fail(new Error('connection refused'))
  expect(await answer).not.toBeNull()
})
