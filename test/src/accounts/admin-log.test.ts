import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { createAdminLog } from '#src/accounts/admin-log-store.ts'
import { createKeysStore } from '#src/accounts/keys-store.ts'
import type { Database } from '#src/storage/database.ts'
import { useDatabases } from '../../support/databases.ts'

const OPERATOR = { who: 'operator (uid 7)', accountId: null, from: 'command line' } as const
const EVERYTHING = { before: null, kind: null, since: null, until: null, limit: 1_000 }
const AT = 1_790_000_000

const databases = await useDatabases()
const database = await databases.open()
const openLog = (on: Pick<Database, 'queries'>) => createAdminLog(on, () => AT * 1000)
/** A log with the acts a, b and c of the kind `open`, and d of the kind `close`. */
const first = openLog(database)
for (const target of ['a', 'b', 'c']) await first.append(OPERATOR, { kind: 'open', target })
await first.append(OPERATOR, { kind: 'close', target: 'd' })

/** Runs a change without the table's triggers, and takes it back at the end. */
async function whileChanged<Result>(
  change: typeof DELETION,
  look: (log: ReturnType<typeof openLog>) => Promise<Result>,
): Promise<Result> {
  const queries = await database.queries.startTransaction().execute()
  try {
    await sql`alter table admin_acts disable trigger all`.execute(queries)
    await change.execute(queries)
    return await look(openLog({ queries }))
  } finally {
    await queries.rollback().execute()
  }
}

it('the log of administrators notes no act that was undone, and undoes acts that it cannot note', async () => {
  const log = openLog(database)
  const account = { id: crypto.randomUUID(), name: 'half', createdAt: AT }
  const open = (inside: Pick<Database, 'queries'>) => createKeysStore(inside).openAccount(account)
  const failing = log.record(OPERATOR, open, () => {
    throw new Error('no more')
  })
  await expect(failing).rejects.toThrow('no more')
  expect(await log.list(EVERYTHING)).toHaveLength(4)
  expect(await createKeysStore(database).findAccount(account.id)).toBeNull()
})

it.each([
  [{}, 'dcba'],
  [{ kind: 'open' }, 'cba'],
  [{ kind: 'open', limit: 1 }, 'c'],
  [{ before: 3 }, 'ba'],
  [{ since: AT }, 'dcba'],
  [{ since: AT + 1 }, ''],
  [{ until: AT }, ''],
])('the log of administrators gives the newest first when it is asked %j', async (query, acts) => {
  const list = await openLog(database).list({ ...EVERYTHING, ...query })
  expect(list.map(({ target }) => target).join('')).toBe(acts)
})

it('the log of administrators keeps its chain under many writers', async () => {
  const log = openLog(await databases.open())
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
  await expect(statement.execute(database.queries)).rejects.toThrow('append-only')
})

it.each([
  ['an entry', sql`update admin_acts set entry = replace(entry, 'b', 'x') where position = 2`, 2],
  ['a kind', sql`update admin_acts set kind = 'x' where position = 3`, 3],
  ['a time', sql`update admin_acts set at = at + 1 where position = 3`, 3],
  ['a hash', sql`update admin_acts set hash = sha256('') where position = 1`, 1],
  [
    'the last byte of a hash',
    sql`update admin_acts set hash = set_byte(hash, 31, get_byte(hash, 31) # 1) where position = 4`,
    4,
  ],
  ['an act that is gone', sql`delete from admin_acts where position = 2`, 2],
])(
  'the log of administrators shows %s that the owner of the database changed',
  async (_, statement, position) => {
    const checked = await whileChanged(statement, (log) => log.check(null))
    expect(checked).toEqual({ kind: 'altered', position })
  },
)

it('the log of administrators does not show that the newest acts are gone, unless their hash was noted', async () => {
  const written = await openLog(database).check(null)
  if (written.kind !== 'whole') throw new Error('expected a whole chain')
  expect(await openLog(database).check(written)).toMatchObject({ kind: 'whole', position: 4 })
  const nearly = {
    ...written,
    hash: written.hash.replace(/.$/, (last) => (last === '0' ? '1' : '0')),
  }
  expect(await openLog(database).check(nearly)).toMatchObject({ kind: 'unexpected' })
  await whileChanged(DELETION, async (log) => {
    expect(await log.check(null)).toMatchObject({ kind: 'whole', position: 2 })
    expect(await log.check(written)).toMatchObject({ kind: 'unexpected', position: 2 })
  })
})

const DELETION = sql`delete from admin_acts where position > 2`
