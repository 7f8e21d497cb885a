import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { createKeysStore } from '#src/accounts/keys-store.ts'
import { useDatabase } from '../../support/databases.ts'

const NEWEST = { limit: 12, cursor: null }

const keys = createKeysStore(await useDatabase())

const openAccount = (name = `account ${crypto.randomUUID()}`) =>
  keys.openAccount({ id: crypto.randomUUID(), name, createdAt: 100 })
const makeKey = (accountId: string, createdAt = 200) => ({
  id: randomBytes(8).toString('hex'),
  accountId,
  secretHash: new Uint8Array(randomBytes(32)),
  name: "laptop 'ä'",
  createdAt,
  scopes: ['inference', 'history:all'] as const,
  expiresAt: 5000,
  createdBy: null,
})

it('the keys store makes an account once, however many ask for it at once', async () => {
  const name = `account ${crypto.randomUUID()}`
  const opened = await Promise.all(Array.from({ length: 5 }, () => openAccount(name)))
  expect(new Set(opened.map(({ id }) => id)).size).toBe(1)
  expect(opened.filter(({ isNew }) => isNew)).toHaveLength(1)
  expect(opened[0]).toMatchObject({ id: expect.any(String), name, createdAt: 100, tier: null })
})

it('the keys store gives a key back as it was stored', async () => {
  const account = await openAccount()
  const key = makeKey(account.id)
  await keys.addKey(key)
  const found = await keys.findKey(key.id)
  expect(found && { ...found, secretHash: new Uint8Array(found.secretHash) }).toEqual({
    ...key,
    accountName: account.name,
    revokedAt: null,
    lastUsedAt: null,
    tier: null,
    isDisabled: false,
    isBudgeted: false,
  })
})

it('the keys store finds several keys at once, and leaves out those that are not there', async () => {
  const account = await openAccount()
  const [one, other] = [makeKey(account.id), makeKey(account.id)]
  await keys.addKey(one)
  await keys.addKey(other)
  await keys.revokeKey(other.id, { at: 300, accountId: null, kept: null })
  const found = await keys.findKeys([one.id, 'nobody', "' or '1'='1", other.id, '{,"'])
  expect(found).toHaveLength(2)
  expect(found).toContainEqual(await keys.findKey(one.id))
  expect(found).toContainEqual(await keys.findKey(other.id))
  expect(await keys.findKeys([])).toEqual([])
})

it('the keys store revokes a key for good, and keeps the time of the first revocation', async () => {
  const key = makeKey((await openAccount()).id)
  await keys.addKey(key)
  expect(await keys.revokeKey(key.id, { at: 300, accountId: null, kept: null })).toEqual([key.id])
  expect(await keys.revokeKey(key.id, { at: 400, accountId: key.accountId, kept: null })).toEqual(
    [],
  )
  expect(await keys.findKey(key.id)).toMatchObject({ revokedAt: 300 })
})

it('the keys store revokes with a key those that it made for its account, and that those made', async () => {
  const [account, other] = [await openAccount(), await openAccount()]
  const first = makeKey(account.id)
  const child = { ...makeKey(account.id), createdBy: first.id }
  const grandchild = { ...makeKey(account.id), createdBy: child.id }
  const elsewhere = { ...makeKey(other.id), createdBy: first.id }
  const sibling = makeKey(account.id)
  for (const key of [first, child, grandchild, elsewhere, sibling]) await keys.addKey(key)
  const ids = await keys.revokeKey(first.id, { at: 300, accountId: account.id, kept: null })
  expect(ids?.toSorted()).toEqual([first.id, child.id, grandchild.id].toSorted())
  expect((await keys.findKey(elsewhere.id))?.revokedAt).toBeNull()
  expect((await keys.findKey(sibling.id))?.revokedAt).toBeNull()
})

it('the keys store keeps the key that asks, and what it made, when it revokes the maker', async () => {
  const account = await openAccount()
  const old = makeKey(account.id)
  const next = { ...makeKey(account.id), createdBy: old.id }
  const ofNext = { ...makeKey(account.id), createdBy: next.id }
  const twin = { ...makeKey(account.id), createdBy: old.id }
  for (const key of [old, next, ofNext, twin]) await keys.addKey(key)
  const ids = await keys.revokeKey(old.id, { at: 300, accountId: account.id, kept: next.id })
  expect(ids?.toSorted()).toEqual([old.id, twin.id].toSorted())
  // When another caller revokes the maker again, the kept keys end too.
  const rest = await keys.revokeKey(old.id, { at: 400, accountId: null, kept: null })
  expect(rest?.toSorted()).toEqual([next.id, ofNext.id].toSorted())
})

it('the keys store makes no key for one that is revoked', async () => {
  const maker = makeKey((await openAccount()).id)
  await keys.addKey(maker)
  await keys.revokeKey(maker.id, { at: 300, accountId: null, kept: null })
  const late = { ...makeKey(maker.accountId), createdBy: maker.id }
  expect(await keys.addKey(late)).toBe(false)
  expect(await keys.findKey(late.id)).toBeNull()
})

it('the keys store leaves no twin of a key that is revoked while it makes keys', async () => {
  const maker = makeKey((await openAccount()).id)
  await keys.addKey(maker)
  const twins = Array.from({ length: 20 }, () => ({
    ...makeKey(maker.accountId),
    createdBy: maker.id,
  }))
  const revoke = () => keys.revokeKey(maker.id, { at: 300, accountId: null, kept: null })
  await Promise.all(
    twins.flatMap((twin, at) => [keys.addKey(twin), ...(at === 9 ? [revoke()] : [])]),
  )
  const good = (await keys.findKeys(twins.map(({ id }) => id))).filter(
    ({ revokedAt }) => revokedAt === null,
  )
  expect(good).toEqual([])
})

it("the keys store revokes no other account's key", async () => {
  const key = makeKey((await openAccount()).id)
  await keys.addKey(key)
  expect(
    await keys.revokeKey(key.id, { at: 300, accountId: (await openAccount()).id, kept: null }),
  ).toBeNull()
  expect(await keys.findKey(key.id)).toMatchObject({ revokedAt: null })
})

it('the keys store notes a use, and the next only a minute later', async () => {
  const key = makeKey((await openAccount()).id)
  await keys.addKey(key)
  for (const [usedAt, recorded] of [
    [1000, 1000],
    [1059, 1000],
    [1060, 1060],
    [900, 1060],
  ] as const) {
    await keys.recordUse(key.id, usedAt)
    expect(await keys.findKey(key.id)).toMatchObject({ lastUsedAt: recorded })
  }
})

it("the keys store gives a key with its account's tier", async () => {
  const { isNew: _, ...account } = await openAccount()
  const key = makeKey(account.id)
  await keys.addKey(key)
  expect(await keys.setTier(account.name, 'gold')).toBe(true)
  expect(await keys.findKey(key.id)).toMatchObject({ tier: 'gold' })
  expect(await keys.findAccount(account.id)).toEqual({ ...account, tier: 'gold' })
  expect(await keys.pageAccounts(NEWEST)).toContainEqual({ ...account, tier: 'gold' })
  expect(await keys.setTier(account.name, null)).toBe(true)
  expect(await keys.findKey(key.id)).toMatchObject({ tier: null })
  expect(await keys.setTier('nobody at all', 'gold')).toBe(false)
  expect(await keys.findAccount(crypto.randomUUID())).toBeNull()
})

it('the keys store counts the keys of an account that are not over, or not for long', async () => {
  const [account, other] = [await openAccount(), await openAccount()]
  const [revoked, forGood] = [makeKey(account.id), { ...makeKey(account.id), expiresAt: null }]
  for (const key of [revoked, forGood, makeKey(account.id), makeKey(other.id)])
    await keys.addKey(key)
  await keys.revokeKey(revoked.id, { at: 300, accountId: account.id, kept: null })
  expect(await keys.countKeys(account.id, 300)).toBe(3)
  expect(await keys.countKeys(account.id, 301)).toBe(2)
  expect(await keys.countKeys(account.id, 5001)).toBe(1)
})

it('the keys store lists keys oldest first, the revoked ones among them', async () => {
  const account = await openAccount()
  const [old, young] = [makeKey(account.id, 1000), makeKey(account.id, 2000)]
  await keys.addKey(young)
  await keys.addKey(old)
  await keys.addKey(makeKey((await openAccount()).id))
  await keys.revokeKey(old.id, { at: 3000, accountId: null, kept: null })
  const listed = await keys.listKeys(account.id)
  expect((await keys.listKeys(null)).length).toBeGreaterThan(listed.length)
  expect(listed.map(({ id, revokedAt }) => [id, revokedAt])).toEqual([
    [old.id, 3000],
    [young.id, null],
  ])
})

it('the keys store lists keys and accounts of one second in the order of their making', async () => {
  const accounts = []
  for (let made = 0; made < 12; made++) accounts.push(await openAccount())
  const [account] = accounts
  const made = Array.from({ length: 12 }, () => makeKey(account?.id ?? expect.unreachable()))
  for (const key of made) await keys.addKey(key)
  // A changed row moves within its table.
  await keys.revokeKey(made[0]?.id ?? '', { at: 300, accountId: null, kept: null })
  await keys.setTier(account?.name ?? '', 'gold')
  const idsOf = (listed: readonly { readonly id: string }[]) => listed.map(({ id }) => id)
  expect(idsOf(await keys.listKeys(account?.id ?? ''))).toEqual(idsOf(made))
  expect(idsOf(await keys.listKeys(null)).filter((id) => idsOf(made).includes(id))).toEqual(
    idsOf(made),
  )
  const page = await keys.pageAccounts(NEWEST)
  if (page === 'unknown_cursor') throw new Error('expected a page')
  expect(idsOf(page).toReversed()).toEqual(idsOf(accounts))
})
