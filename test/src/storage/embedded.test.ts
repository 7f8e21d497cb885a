import { mkdir, mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { openEmbedded } from '../../../src/storage/embedded.ts'

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
