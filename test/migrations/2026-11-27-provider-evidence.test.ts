import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { createProviderEvidenceStore } from '#src/providers/provider-evidence-store.ts'
import { openDatabase } from '#src/storage/database.ts'
import { createTestDatabase } from '../support/test-database.ts'

const ACCOUNT = '6f1c8f0e-6f0b-4a55-9b0e-3f7a1f0f3a11'

it('a database of the first release gets the tables, and keeps its rows', async () => {
  const place = { url: await createTestDatabase() }
  const before = await openDatabase(place)
  await sql`drop table provider_evidence_keys, provider_evidence, provider_keys_seen, provider_turns`.execute(
    before.queries,
  )
  await sql`delete from kysely_migration where name <> '2026-11-26-initial'`.execute(before.queries)
  await sql`insert into accounts (id, name, created_at) values (${ACCOUNT}, 'old', 1)`.execute(
    before.queries,
  )
  await before.close()
  const after = await openDatabase(place)
  try {
    expect(after.migrated).toEqual(['2026-11-27-provider-evidence'])
    const { rows } = await sql`select name from accounts`.execute(after.queries)
    expect(rows).toEqual([{ name: 'old' }])
    expect(await createProviderEvidenceStore(after).listKeys('https://a.example')).toEqual([])
  } finally {
    await after.close()
  }
}, 60_000)
