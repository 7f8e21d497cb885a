import { Kysely, sql } from 'kysely'
import { expect, it } from 'vitest'
import { openEmbedded, startUpkeep } from '#src/storage/embedded.ts'
import { useDatabases } from '../../support/databases.ts'

const MIB = 1024 * 1024

const source = await useDatabases('embedded')

/**
 * Writes 160 MiB of log with upkeep of these limits, and gives where recovery would then begin.
 */
async function bytesToRecover(walBytesMax: number): Promise<number> {
  const location = await source.locate()
  if (!('dataFolder' in location)) throw new Error('expected a folder')
  const opened = await openEmbedded(location.dataFolder, rethrow, {
    intervalMs: 20,
    walBytesMax,
  })
  const queries = new Kysely<never>({ dialect: opened.dialect })
  await sql`create table filler (text text)`.execute(queries)
  await sql`alter table filler alter column text set storage external`.execute(queries)
  for (let written = 0; written < 10; written++) {
    await sql`insert into filler select repeat('x', 8000) from generate_series(1, 2000)`.execute(
      queries,
    )
    await new Promise((resolve) => setTimeout(resolve, 40))
  }
  const { rows } = await sql<{ bytes: number }>`
    select pg_wal_lsn_diff(pg_current_wal_lsn(), redo_lsn)::bigint as bytes from pg_control_checkpoint()`.execute(
    queries,
  )
  await queries.destroy()
  await opened.close()
  return rows[0]?.bytes ?? Number.NaN
}

it('upkeep of the embedded database checkpoints when the write-ahead log has grown', async () => {
  expect(await bytesToRecover(32 * MIB)).toBeLessThan(64 * MIB)
})

it('upkeep of the embedded database reports what fails and goes on', async () => {
  const errors: Error[] = []
  let calls = 0
  const database = {
    query: async () => {
      calls++
      throw new Error(`failure ${calls}`)
    },
  }
  const upkeep = startUpkeep(database, { intervalMs: 5, walBytesMax: 0 }, (error) =>
    errors.push(error),
  )
  await expect.poll(() => errors.length).toBeGreaterThan(2)
  await upkeep.stop()
  const stoppedAt = calls
  await new Promise((resolve) => setTimeout(resolve, 30))
  expect(calls).toBe(stoppedAt)
})

function rethrow(error: Error): never {
  throw error
}
