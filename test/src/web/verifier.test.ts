import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  digestVerifier,
  makePage,
  readEvidencePage,
  writeMadeBy,
} from '#attestation/report/evidence-page.ts'
import { VERSION } from '#src/runtime/version.ts'
import { bundleSaved } from '#src/web/bundle.ts'
import { openVerifier, readMaker } from '#src/web/verifier.ts'
import { folderOfFile } from '../../support/folders.ts'

const ROOT = join(import.meta.dirname, '../../..')
const temporary = folderOfFile()

const git = (folder: string, ...words: readonly string[]) =>
  execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@localhost', ...words], {
    cwd: folder,
    encoding: 'utf8',
  }).trim()

describe('the verifier', () => {
  it('the verifier has the same bytes whenever it is bundled, and in whichever folder', async () => {
    const folder = join(temporary, 'elsewhere/deeper')
    for (const part of ['attestation', 'client', 'src/web', 'src/runtime', 'package.json'])
      cpSync(join(ROOT, part), join(folder, part), { recursive: true })
    symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
    const program = `import { openVerifier } from './src/web/verifier.ts'; process.stdout.write((await openVerifier()).verifier)`
    writeFileSync(join(folder, 'print.ts'), program)
    const there = execFileSync(process.execPath, [join(folder, 'print.ts')], {
      cwd: tmpdir(),
      encoding: 'utf8',
      maxBuffer: 2 ** 24,
    })
    const [one, other] = [await openVerifier(), await openVerifier()]
    // Not the texts, of which a difference would print 300 KB.
    expect(one.verifier === other.verifier).toBe(true)
    expect(digestVerifier(there)).toBe(digestVerifier(one.verifier))
  })

  it('the verifier is a page whose own script is not taken for data', async () => {
    const { verifier, maker } = await openVerifier()
    const page = makePage(verifier, writeMadeBy(verifier, maker))
    const read = readEvidencePage(Buffer.from(page))
    expect(read).toMatchObject({ evidence: null, verifierSha256: digestVerifier(verifier) })
    expect(read.madeBy.verifierSha256).toBe(read.verifierSha256)
  })

  it('the verifier names as sources what its worker is made of, too', async () => {
    const { sources } = await bundleSaved()
    for (const path of ['src/web/verify/run-job.ts', 'attestation/verify-record.ts'])
      expect(sources).toContain(path)
    expect(sources.filter((path) => path.includes(':') || path.startsWith('/'))).toEqual([])
  })
})

describe('the maker of pages', () => {
  it('the maker of pages is the commit that is checked out, until its sources are changed', async () => {
    const folder = join(temporary, 'checkout')
    mkdirSync(join(folder, 'src/web'), { recursive: true })
    writeFileSync(join(folder, 'package.json'), '{}')
    git(folder, 'init', '--quiet')
    git(folder, 'add', '.')
    git(folder, '-c', 'commit.gpgSign=false', 'commit', '--quiet', '--message', 'one')
    const commit = git(folder, 'rev-parse', 'HEAD')
    expect(await readMaker(folder)).toEqual({ version: VERSION, commit })
    writeFileSync(join(folder, 'README.md'), 'not a source')
    expect(await readMaker(folder)).toEqual({ version: VERSION, commit })
    writeFileSync(join(folder, 'src/web/page.ts'), 'changed')
    expect(await readMaker(folder)).toEqual({ version: VERSION, commit: null })
    // A folder of the checkout is another program, which the commit does not describe.
    writeFileSync(join(folder, 'src/package.json'), '{}')
    expect(await readMaker(join(folder, 'src'))).toEqual({ version: VERSION, commit: null })
  })

  it('the maker of pages is what package.json names where there is no checkout', async () => {
    const folder = join(temporary, 'image')
    mkdirSync(folder)
    const commit = 'ab'.repeat(20)
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ gitHead: commit }))
    expect(await readMaker(folder)).toEqual({ version: VERSION, commit })
    for (const gitHead of [undefined, 'main', 7]) {
      writeFileSync(join(folder, 'package.json'), JSON.stringify({ gitHead }))
      expect(await readMaker(folder)).toEqual({ version: VERSION, commit: null })
    }
  })
})
