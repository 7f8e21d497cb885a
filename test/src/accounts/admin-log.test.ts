import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createAdminLog } from '#src/accounts/admin-log-store.ts'
import { createKeysStore } from '#src/accounts/keys-store.ts'
import { operationsIn } from '#src/cli/operations.ts'
import { enclaveActs } from '#src/enclaves/enclave-acts.ts'
import type { Database } from '#src/storage/database.ts'
import { type DatabaseSource, startDatabases } from '../../support/databases.ts'

const OPERATOR = { who: 'operator (uid 7)', accountId: null, from: 'command line' } as const
const EVERYTHING = { before: null, kind: null, since: null, until: null, limit: 1_000 }
const AT = 1_790_000_000

const enclaves = {
  list: () => [],
  add: async () => 'done' as const,
  drain: () => 'unknown' as const,
  remove: async () => 'in_use' as const,
}

function openLog(database: Database) {
  const log = createAdminLog(database, () => AT * 1000)
  const place = { database, adminLog: log, tiers: () => ['gold'], enclaves }
  const onEnclave = (verb: 'add' | 'drain' | 'remove') =>
    enclaveActs[verb].perform({ url: 'unix:/run/a' }, place, OPERATOR)
  return { log, operations: operationsIn(place, OPERATOR), onEnclave }
}

describe('the log of administrators', () => {
  let databases: DatabaseSource
  beforeAll(async () => {
    databases = await startDatabases()
  })
  afterAll(() => databases.stop())

  it('the log of administrators has every act with who, what and outcome, and no secret', async () => {
    const { log, operations, onEnclave } = openLog(await databases.open())
    const { keys, accounts, erasures } = operations
    const order = { account: 'acme', name: 'ci', scopes: ['inference' as const], expires_at: null }
    const { id, key } = await keys.create(order)
    await accounts.open({ name: 'acme' })
    await accounts.open({ name: 'other' })
    await accounts.setTier({ name: 'acme', tier: 'gold' })
    await expect(accounts.setTier({ name: 'acme', tier: 'tin' })).rejects.toThrow('a tier of')
    await erasures.setRetention({ name: 'acme', days: 30 })
    await erasures.record({ hash: 'ab'.repeat(32), reason: 'asked for' })
    await erasures.account({ account: 'acme', reason: 'asked for' })
    await onEnclave('add')
    await expect(onEnclave('drain')).rejects.toThrow('no such enclave')
    await expect(onEnclave('remove')).rejects.toThrow('in use')
    await accounts.setState({ name: 'acme', state: 'disabled' })
    await accounts.setState({ name: 'acme', state: 'active' })
    await keys.revoke({ id })
    await expect(keys.revoke({ id: 'a'.repeat(16) })).rejects.toThrow('no key')
    await accounts.delete({ name: 'acme' })
    await keys.list({})
    const acts = (await log.list(EVERYTHING)).toReversed()
    expect(acts.map((act) => [act.kind, act.target, act.outcome])).toEqual([
      ['account.open', 'acme', 'done'],
      ['key.create', id, 'done'],
      ['account.open', 'other', 'done'],
      ['account.set_tier', 'acme', 'set'],
      ['account.set_tier', 'acme', 'unknown_tier'],
      ['retention.set', 'acme', 'set'],
      ['erasure.record', 'ab'.repeat(32), 'done'],
      ['erasure.account', 'acme', 'erased'],
      ['enclave.add', 'unix:/run/a', 'done'],
      ['enclave.drain', 'unix:/run/a', 'unknown'],
      ['enclave.remove', 'unix:/run/a', 'in_use'],
      ['account.disable', 'acme', 'set'],
      ['account.enable', 'acme', 'set'],
      ['key.revoke', id, 'revoked'],
      ['key.revoke', 'a'.repeat(16), 'unknown'],
      ['account.delete', 'acme', 'set'],
    ])
    const who = { at: AT, who: 'operator (uid 7)', account_id: null, from: 'command line' }
    for (const act of acts) expect(act).toMatchObject(who)
    // The secret may begin with the character that is before it.
    const secret = key.slice(key.indexOf(`${id}_`) + id.length + 1)
    expect(secret.length).toBeGreaterThan(20)
    expect(JSON.stringify(acts)).not.toContain(secret)
    await expect(log.check(null)).resolves.toMatchObject({ kind: 'whole', position: 16 })
  })

  it('the log of administrators notes no act that was undone, and undoes acts that it cannot note', async () => {
    const database = await databases.open()
    const { log } = openLog(database)
    const account = { id: crypto.randomUUID(), name: 'half', createdAt: AT }
    const open = (inside: Pick<Database, 'queries'>) => createKeysStore(inside).openAccount(account)
    const failing = log.record(OPERATOR, open, () => {
      throw new Error('no more')
    })
    await expect(failing).rejects.toThrow('no more')
    expect(await log.list(EVERYTHING)).toEqual([])
    const page = { limit: 10, cursor: null }
    expect(await createKeysStore(database).pageAccounts(page)).toEqual([])
  })

  it('the log of administrators filters its acts, and gives the newest first', async () => {
    const { log, operations } = openLog(await databases.open())
    for (const name of ['a', 'b', 'c']) await operations.accounts.open({ name })
    await operations.accounts.setTier({ name: 'a', tier: null })
    const targets = async (query: object) =>
      (await log.list({ ...EVERYTHING, ...query })).map(({ target }) => target)
    expect(await targets({ kind: 'account.open' })).toEqual(['c', 'b', 'a'])
    expect(await targets({ kind: 'account.open', limit: 1 })).toEqual(['c'])
    expect(await targets({ before: 3 })).toEqual(['b', 'a'])
    expect(await targets({ since: AT + 1 })).toEqual([])
    expect(await targets({ until: AT })).toEqual([])
  })

  it('the log of administrators keeps its chain under many writers', async () => {
    const { log } = openLog(await databases.open())
    const acts = Array.from({ length: 32 }, (_, n) =>
      log.append(OPERATOR, { kind: 'test', target: String(n) }),
    )
    await Promise.all(acts)
    await expect(log.check(null)).resolves.toMatchObject({ kind: 'whole', position: 32 })
  })

  it.each([
    ['update', sql`update admin_acts set entry = '{}'`],
    ['delete', sql`delete from admin_acts`],
    ['truncate', sql`truncate admin_acts`],
  ])('the table of acts refuses the statement %s', async (_, statement) => {
    const database = await databases.open()
    const { operations } = openLog(database)
    await operations.accounts.open({ name: 'a' })
    await expect(statement.execute(database.queries)).rejects.toThrow('append-only')
  })

  it.each([
    ['an entry', sql`update admin_acts set entry = replace(entry, 'b', 'x') where position = 2`, 2],
    ['a kind', sql`update admin_acts set kind = 'x' where position = 3`, 3],
    ['a time', sql`update admin_acts set at = at + 1 where position = 3`, 3],
    ['a hash', sql`update admin_acts set hash = sha256('') where position = 1`, 1],
    ['an act that is gone', sql`delete from admin_acts where position = 2`, 2],
  ])(
    'the log of administrators shows %s that the owner of the database changed',
    async (_, statement, position) => {
      const database = await databases.open()
      const { log, operations } = openLog(database)
      for (const name of ['a', 'b', 'c']) await operations.accounts.open({ name })
      await sql`alter table admin_acts disable trigger all`.execute(database.queries)
      await statement.execute(database.queries)
      expect(await log.check(null)).toEqual({ kind: 'altered', position })
    },
  )

  it('the log of administrators does not show that the newest acts are gone, unless their hash was noted', async () => {
    const database = await databases.open()
    const { log, operations } = openLog(database)
    for (const name of ['a', 'b', 'c']) await operations.accounts.open({ name })
    const before = await log.check(null)
    if (before.kind !== 'whole') throw new Error('expected a whole chain')
    await operations.accounts.open({ name: 'd' })
    expect(await log.check(before)).toMatchObject({ kind: 'whole', position: 4 })
    await sql`alter table admin_acts disable trigger all`.execute(database.queries)
    await sql`delete from admin_acts where position > 2`.execute(database.queries)
    expect(await log.check(null)).toMatchObject({ kind: 'whole', position: 2 })
    expect(await log.check(before)).toMatchObject({ kind: 'unexpected', position: 2 })
  })
})
