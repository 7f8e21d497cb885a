import { execFileSync } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { needNo } from '../support/needs.ts'
import { DEBIAN_POSTGRES, DEBIAN_POSTGRES_PROGRAMS } from '../support/postgres.ts'
import { type CliRun, runCli } from '../support/run-cli.ts'
import { type Machine, startMachine } from './machine.ts'
import { walkPage } from './walk.ts'

const ROOT = join(import.meta.dirname, '../..')
const programs = DEBIAN_POSTGRES_PROGRAMS

/** The release before: the commit before the one that added the newest migration. */
const BEFORE = findReleaseBefore()

function findReleaseBefore(): string | null {
  const git = (...words: readonly string[]) =>
    execFileSync('git', words, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
  try {
    const path = 'src/storage/migrations/*.ts'
    const added = git('log', '-1', '--diff-filter=A', '--format=%H', '--', path).trim()
    return added === '' ? null : git('rev-parse', '--verify', `${added}^`).trim()
  } catch {
    // No git, no repository, or a shallow one.
    return null
  }
}

const HISTORY = needNo(BEFORE === null ? 'the history of this repository' : null)

describe.runIf(DEBIAN_POSTGRES.isMet && HISTORY.isMet)(
  HISTORY.title(DEBIAN_POSTGRES.title('upgrade and downgrade')),
  () => {
    let folder: string
    let old: string
    let checkout: string
    let machine: Machine
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'affidavit-releases-'))
      old = join(folder, 'old')
      await mkdir(old)
      const archive = execFileSync('git', ['archive', BEFORE ?? ''], {
        cwd: ROOT,
        maxBuffer: 2 ** 29,
      })
      execFileSync('tar', ['-x', '-C', old], { input: archive })
      await symlink(join(ROOT, 'node_modules'), join(old, 'node_modules'))
      checkout = join(folder, 'affidavit')
      await symlink(old, checkout)
      // Gateways are upgraded before enclaves: an older one may refuse a newer enclave.
      machine = await startMachine({ checkout, enclaveCheckout: old, database: { programs } })
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
        '/opt/releases/next': ROOT,
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

    it('a running gateway of the release before serves on while the next release migrates', async () => {
      const [gateway] = machine.gateways
      const enclave = machine.enclaves.get('16')
      await gateway.program.end('SIGTERM')
      await rm(checkout)
      await symlink(old, checkout)
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
      expect(await migrate(url)).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Ran /) })
      const after = await machine.complete()
      expect(indexOf(after)).toBe(indexOf(before) + 1)
      expect(gateway.program.exits).toBe(0)
    })

    it('this release refuses a database with a migration that it does not know', async () => {
      const settings = await readFile(join(machine.etc, 'gateway.env'), 'utf8')
      const [, url = ''] = /^DATABASE_URL=(.*)$/m.exec(settings) ?? []
      const later =
        "insert into kysely_migration values ('2126-01-01-later', '2126-01-01T00:00:00Z')"
      execFileSync(join(programs, 'psql'), ['--quiet', `--dbname=${url}`, `--command=${later}`])
      const run = await migrate(url)
      expect(run).toMatchObject({ code: 1, stdout: '' })
      expect(run.stderr).toContain('which does not know its migration 2126-01-01-later')
      // As the page has it, for releases of before there was `migrate`.
      const list = await runCli(['accounts', 'list'], { variables: { DATABASE_URL: url } })
      expect(list).toMatchObject({ code: 1, stdout: '' })
      expect(list.stderr).toMatch(/^affidavit: database: .* migration 2126-01-01-later/)
    })
  },
)

/** `affidavit migrate` of this checkout. */
function migrate(url: string): Promise<CliRun> {
  return runCli(['migrate'], { variables: { DATABASE_URL: url } })
}

/** Leaf of an answer: those of one log follow each other while nothing is lost. */
function indexOf({ text }: { readonly text: string }): number {
  return (JSON.parse(text) as { readonly receipt: { readonly index: number } }).receipt.index
}
