import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { DEBIAN_POSTGRES, DEBIAN_POSTGRES_PROGRAMS } from '../support/postgres.ts'
import { runProgram } from '../support/run-cli.ts'
import { type Machine, startMachine } from './machine.ts'
import { walkPage } from './walk.ts'

const ROOT = join(import.meta.dirname, '../..')
const programs = DEBIAN_POSTGRES_PROGRAMS

/** A migration that the next release adds. */
const LATER = `import { sql } from 'kysely'
export const up = (db: Parameters<typeof sql.raw>[0]) => sql\`create table later (id bigint)\`.execute(db)
`

describe.runIf(DEBIAN_POSTGRES.isMet)(DEBIAN_POSTGRES.title('upgrade and downgrade'), () => {
  let folder: string
  /** The next release: this one, with a migration more. */
  let next: string
  let checkout: string
  let machine: Machine
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'affidavit-releases-'))
    next = join(folder, 'next')
    await mkdir(next)
    for (const name of await readdir(ROOT))
      if (name !== 'src' && name !== 'migrations') await symlink(join(ROOT, name), join(next, name))
    for (const name of ['src', 'migrations'])
      await cp(join(ROOT, name), join(next, name), { recursive: true })
    await writeFile(join(next, 'migrations/2126-01-01-later.ts'), LATER)
    checkout = join(folder, 'affidavit')
    await symlink(ROOT, checkout)
    machine = await startMachine({ checkout, database: { programs } })
  })
  afterAll(async () => {
    await machine?.stop()
    await rm(folder, { recursive: true, force: true })
  })
  const walking = () => ({
    ...machine.walking,
    programs: [programs],
    places: {
      ...machine.walking.places,
      '/opt/releases/next': next,
      '/opt/affidavit': checkout,
    },
  })

  it('an upgrade is taken back without a loss while no caller was let in', async () => {
    const first = await machine.complete()
    await walkPage('upgrade-and-downgrade', walking(), async (walk) => {
      await walk.section('Before you begin')
      await walk.section('Stop, and dump')
      await walk.section('Upgrade')
      await machine.readRecord(first.hash)
      await walk.section('Look before callers are let in')
      await walk.section('Go back, before callers were let in')
    })
    await machine.readRecord(first.hash)
    const second = await machine.complete()
    expect(indexOf(second)).toBe(indexOf(first) + 1)
  })

  it('callers go on where they were after an upgrade', async () => {
    const before = await machine.complete()
    await walkPage('upgrade-and-downgrade', walking(), async (walk) => {
      await walk.section('Before you begin')
      await walk.section('Stop, and dump')
      await walk.section('Upgrade')
      await walk.section('Look before callers are let in')
      walk.leave()
    })
    const after = await machine.complete()
    expect(indexOf(after)).toBe(indexOf(before) + 1)
    for (const { hash } of [before, after]) await machine.readRecord(hash)
  })

  it('a running gateway serves on while the next release migrates', async () => {
    const [gateway] = machine.gateways
    const enclave = machine.enclaves.get('16')
    await gateway.program.end('SIGTERM')
    await rm(checkout)
    await symlink(ROOT, checkout)
    const file = join(machine.etc, 'gateway.env')
    const settings = await readFile(file, 'utf8')
    const url = await machine.postgres.createDatabase()
    await writeFile(file, settings.replace(/^DATABASE_URL=.*$/m, `DATABASE_URL=${url}`))
    // Its log is of another database.
    await enclave?.end('SIGTERM')
    enclave?.start()
    await gateway.start()
    await machine.waitUntilReady()
    const before = await machine.complete()
    const variables = { DATABASE_URL: url }
    const run = await runProgram(join(next, 'src/cli/main.ts'), ['migrate'], { variables })
    expect(run).toMatchObject({ code: 0, stdout: 'Ran 1 migrations: 2126-01-01-later\n' })
    const after = await machine.complete()
    expect(indexOf(after)).toBe(indexOf(before) + 1)
    expect(gateway.program.exits).toBe(0)
  })
})

/** Leaf of an answer: those of one log follow each other while nothing is lost. */
function indexOf({ text }: { readonly text: string }): number {
  return (JSON.parse(text) as { readonly receipt: { readonly index: number } }).receipt.index
}
