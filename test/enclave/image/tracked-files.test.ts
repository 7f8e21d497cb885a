import { execFileSync } from 'node:child_process'
import { copyFileSync, cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { readTrackedSources } from '#enclave/image/tracked-files.ts'
import { folderOfFile } from '../../support/folders.ts'

const place = folderOfFile()

const first = join(place, 'first')
let root = first
let count = 0
const git = (...words: readonly string[]) =>
  execFileSync('git', words, { cwd: root, encoding: 'utf8' })
const write = (path: string, text: string) => writeFileSync(join(root, path), text)
const read = async () => {
  const { files, ...rest } = await readTrackedSources(root)
  const texts = [...files].map(([path, entry]) => [
    path,
    entry.kind === 'file' ? Buffer.from(entry.data).toString() : entry.kind,
  ])
  return { ...rest, files: Object.fromEntries(texts) }
}

const MAIN = "import '../attestation/a.ts'\n"

beforeAll(() => {
  for (const folder of ['attestation', 'enclave/image', 'src/api'])
    mkdirSync(join(root, folder), { recursive: true })
  git('init', '--quiet')
  git('config', 'user.name', 'Tester')
  git('config', 'user.email', 'tester@example.com')
  copyFileSync(join(import.meta.dirname, '../../../.gitattributes'), join(root, '.gitattributes'))
  for (const path of [
    'attestation/a.ts',
    'enclave/idle.ts',
    'src/api/app.ts',
    'enclave/image/build.ts',
  ])
    write(path, `// ${path}\n`)
  write('enclave/main.ts', MAIN)
  for (const path of ['package.json', 'package-lock.json']) write(path, '{}\n')
  git('add', '--all')
  git('commit', '--quiet', '--message', 'first')
})
beforeEach(() => {
  root = join(place, String(count++))
  cpSync(first, root, { recursive: true, preserveTimestamps: true })
})

describe('the sources of an image', () => {
  it('the sources of an image are what the verifier loads, and nothing else', async () => {
    expect(await read()).toEqual({
      files: { 'attestation/a.ts': '// attestation/a.ts\n', 'enclave/main.ts': MAIN },
      commit: git('rev-parse', 'HEAD').trim(),
      committedAtMs: Number(git('log', '-1', '--format=%ct')) * 1000,
      uncommitted: [],
    })
  })

  it('the sources of an image may have files of any name', async () => {
    const odd = ['enclave/main.ts\tx', 'enclave/*.ts', 'enclave/\u00e9 "x"', 'enclave/-x']
    for (const path of odd) write(path, 'odd')
    write('enclave/main.ts', odd.map((path) => `import '../${path}'\n`).join(''))
    git('add', '--all')
    const { files, uncommitted } = await read()
    for (const path of odd) expect(files[path]).toBe('odd')
    expect(uncommitted.toSorted()).toEqual(['enclave/main.ts', ...odd].toSorted())
  })

  it('each changed or new file of the sources of an image, its builder and its packages is uncommitted', async () => {
    const changed = [
      'attestation/a.ts',
      'enclave/image/build.ts',
      'enclave/image/new.json',
      'enclave/main.ts',
      'package-lock.json',
      'package.json',
    ]
    for (const path of changed) write(path, path === 'enclave/main.ts' ? `${MAIN}//` : 'changed')
    expect((await read()).uncommitted.toSorted()).toEqual(changed)
  })

  it.each(['--assume-unchanged', '--skip-worktree'])(
    'the sources of an image are uncommitted where git is told not to look, by %s',
    async (flag) => {
      git('update-index', flag, 'enclave/main.ts', 'enclave/image/build.ts')
      write('enclave/main.ts', `${MAIN}// changed\n`)
      expect(await read()).toMatchObject({
        uncommitted: ['enclave/image/build.ts', 'enclave/main.ts'],
      })
    },
  )

  it('a file that the enclave loads and git ignores is named as uncommitted', async () => {
    write('enclave/main.ts', "import './own.log.ts'\n")
    git('commit', '--all', '--quiet', '--message', 'second')
    write('.git/info/exclude', 'own.log.ts\n')
    write('enclave/own.log.ts', '// own\n')
    expect((await read()).uncommitted).toEqual(['enclave/own.log.ts'])
  })

  it('the sources of an image are committed despite changes elsewhere and files that git ignores', async () => {
    write('src/api/app.ts', 'changed')
    write('enclave/idle.ts', 'changed')
    write('enclave/image/README.md', 'new')
    write('.git/info/exclude', 'enclave/*.log\n')
    write('enclave/a.log', 'x')
    expect((await read()).uncommitted).toEqual([])
  })

  it('a file that is imported but missing, or behind a link, is refused as a source of an image', async () => {
    rmSync(join(root, 'attestation/a.ts'))
    await expect(read()).rejects.toMatchObject({ name: 'BuildError', code: 'no_work_tree' })
    symlinkSync('/etc/hostname', join(root, 'attestation/a.ts'))
    await expect(read()).rejects.toMatchObject({ name: 'BuildError', code: 'no_work_tree' })
  })

  it('the sources of an image name the same commit where git is told to show signatures', async () => {
    const unsigned = git('cat-file', 'commit', 'HEAD')
    const signature =
      'gpgsig -----BEGIN PGP SIGNATURE-----\n \n none\n -----END PGP SIGNATURE-----\n'
    const signed = execFileSync('git', ['hash-object', '-t', 'commit', '-w', '--stdin'], {
      cwd: root,
      input: unsigned.replace('\n\n', `\n${signature}\n`),
    })
    git('update-ref', 'HEAD', signed.toString().trim())
    git('config', 'log.showSignature', 'true')
    // A program that stands for gpg, wherever that is not installed.
    write('.git/gpg', '#!/bin/sh\necho "made up" >&2\nexit 1\n')
    execFileSync('chmod', ['+x', join(root, '.git/gpg')])
    git('config', 'gpg.program', join(root, '.git/gpg'))
    expect((await read()).commit).toBe(signed.toString().trim())
  })
})
