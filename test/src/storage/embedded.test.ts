import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { openEmbedded } from '#src/storage/embedded.ts'

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
