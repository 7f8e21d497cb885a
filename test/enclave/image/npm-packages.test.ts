import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type NpmPackage, openNpmPackage, tarballNameOf } from '#enclave/image/npm-packages.ts'
import { folderOfFile } from '../../support/folders.ts'

const folder = folderOfFile()

const NAMES = { name: '@scope/thing', version: '1.2.3' }
writeFileSync(join(folder, 'package.json'), '{}')
writeFileSync(join(folder, 'README.md'), 'words')
const archive = execFileSync(
  'tar',
  ['--create', '--gzip', '--transform=s,^,package/,', 'package.json', 'README.md'],
  {
    cwd: folder,
  },
)
writeFileSync(join(folder, tarballNameOf(NAMES)), archive)
const pinned: NpmPackage = {
  ...NAMES,
  integrity: `sha512-${createHash('sha512').update(archive).digest('base64')}`,
  take: ['package.json'],
}
const open = (change: Partial<NpmPackage> = {}) =>
  openNpmPackage({ ...pinned, ...change }, { folder, cache: join(folder, 'cache') })

describe('openNpmPackage', () => {
  it('openNpmPackage gives the files that are to be taken, without the folder around them', async () => {
    expect([...(await open()).keys()]).toEqual(['package.json'])
  })

  it('openNpmPackage refuses another digest, a file that is missing, and a package that is missing', async () => {
    const integrity = `sha512-${'A'.repeat(86)}==`
    await expect(open({ integrity })).rejects.toMatchObject({ code: 'package_altered' })
    await expect(open({ take: ['index.js'] })).rejects.toMatchObject({ code: 'package_incomplete' })
    await expect(open({ version: '9.9.9' })).rejects.toMatchObject({ code: 'package_unavailable' })
  })
})
