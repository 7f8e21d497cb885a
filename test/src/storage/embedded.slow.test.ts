import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { DataFolderInUse } from '#src/runtime/folder-lock.ts'
import { openDatabase } from '#src/storage/database.ts'
import { openEmbedded } from '#src/storage/embedded.ts'
import { testOpenDatabase } from './open-database.ts'

describe('openDatabase on PGlite', () => testOpenDatabase('embedded'))

it('other users are kept out of the embedded database, whose files PGlite opens to them', async () => {
  const parent = await mkdtemp(join(tmpdir(), 'affidavit-embedded-'))
  const folder = join(parent, 'database')
  await mkdir(folder, { mode: 0o755 })
  const opened = await openEmbedded(folder, (error) => {
    throw error
  })
  try {
    expect((await stat(folder)).mode & 0o777).toBe(0o700)
  } finally {
    await opened.close()
    await rm(parent, { recursive: true })
  }
})

it('an embedded database that a killed start left half made is made anew', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-embedded-'))
  const pgdata = join(folder, 'pgdata')
  await mkdir(pgdata)
  await writeFile(join(pgdata, 'PG_VERSION'), 'half')
  await writeFile(`${pgdata}.unfinished`, '')
  const opened = await openEmbedded(folder, (error) => {
    throw error
  })
  try {
    expect((await readdir(folder)).filter((name) => name.startsWith('pgdata'))).toEqual(['pgdata'])
    expect((await readFile(join(pgdata, 'PG_VERSION'), 'utf8')).trim()).toBe('18')
  } finally {
    await opened.close()
    await rm(folder, { recursive: true })
  }
})

it('openDatabase makes the folder, and keeps a second opener out', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-database-'))
  const dataFolder = join(folder, 'not', 'there', 'yet')
  const database = await openDatabase({ dataFolder })
  await expect(openDatabase({ dataFolder })).rejects.toThrow(DataFolderInUse)
  expect((await sql`select 1 as one`.execute(database.queries)).rows).toEqual([{ one: 1 }])
  await database.close()
  await rm(folder, { recursive: true })
}, 60_000)
