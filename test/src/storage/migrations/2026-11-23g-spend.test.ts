import { type Kysely, sql } from 'kysely'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createUsageStore } from '../../../../src/accounts/usage-store.ts'
import { type Database, openDatabase } from '../../../../src/storage/database.ts'
import { down, up } from '../../../../src/storage/migrations/2026-11-23g-spend.ts'
import { createTestDatabase } from '../../../support/test-database.ts'

const HOUR_AT = 1_795_219_200

let database: Database
beforeAll(async () => {
  database = await openDatabase({ url: await createTestDatabase() })
})
afterAll(() => database.close())

it('the migration of spending keeps rows, and does not know their keys, models, split and price', async () => {
  const queries = database.queries as unknown as Kysely<unknown>
  await down(queries)
  const id = crypto.randomUUID()
  await sql`insert into usage_hours (account_id, hour_at, operation, family, requests, tokens)
      values (${id}::uuid, ${HOUR_AT}, 'chat', 'gpt', 3, 40)`.execute(queries)
  await up(queries)
  const rows = await createUsageStore(database, () => HOUR_AT).report({
    ...{ account: { id }, key: null, from: 0, until: HOUR_AT + 1, per: 'hour' },
    by: ['key', 'operation', 'model'],
  })
  expect(rows).toMatchObject([
    {
      ...{ key: null, model: null, operation: 'chat', family: 'gpt', requests: 3, tokens: 40 },
      ...{ prompt_tokens: 0, completion_tokens: 0, unsplit_tokens: 40 },
      ...{ money: '0', unpriced_requests: 3 },
    },
  ])
})
