import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  type DebianPackage,
  digestSha256,
  fileNameOf,
  openDebianPackage,
  parsePackageList,
} from '#enclave/image/debian-packages.ts'
import { folderOfFile } from '../../support/folders.ts'
import { needProgram } from '../../support/needs.ts'

const DPKG = needProgram('dpkg-deb')
const root = folderOfFile()
const cache = join(root, 'cache')

const PIN = {
  name: 'hello',
  version: '1:2.0-1',
  architecture: 'amd64',
  sha256: '0'.repeat(64),
  size: 1,
  into: ['application'],
  why: 'a test',
  take: ['usr/bin/*'],
} as const
const parse = (value: unknown) => parsePackageList(Buffer.from(JSON.stringify(value)))

/** Makes a package with Debian's own tool, and its pin. */
function makePackage(): { readonly folder: string; readonly pinned: DebianPackage } {
  const [tree, folder] = [join(root, 'tree'), join(root, 'packages')]
  mkdirSync(join(tree, 'DEBIAN'), { recursive: true })
  mkdirSync(join(tree, 'usr/bin'), { recursive: true })
  mkdirSync(join(tree, 'usr/share/doc'), { recursive: true })
  mkdirSync(folder, { recursive: true })
  const control =
    'Package: hello\nVersion: 1:2.0-1\nArchitecture: amd64\nMaintainer: nobody\nDescription: test\n'
  writeFileSync(join(tree, 'DEBIAN/control'), control)
  writeFileSync(join(tree, 'usr/bin/hello'), 'hello', { mode: 0o755 })
  writeFileSync(join(tree, 'usr/share/doc/README'), 'words')
  const file = join(folder, fileNameOf(PIN))
  execFileSync('dpkg-deb', ['--build', '--root-owner-group', tree, file])
  const bytes = readFileSync(file)
  const [pinned] = parse([{ ...PIN, sha256: digestSha256(bytes), size: bytes.length }])
  if (pinned === undefined) throw new Error('expected a pin')
  return { folder, pinned }
}

describe('parsePackageList', () => {
  it.each([
    ['no package', []],
    ['a member too many', [{ ...PIN, url: 'x' }]],
    ['a short digest', [{ ...PIN, sha256: 'ab' }]],
    ['a name with a path', [{ ...PIN, name: '../hello' }]],
    ['a version with a path', [{ ...PIN, version: '1/2' }]],
    ['nothing to take', [{ ...PIN, take: [] }]],
  ])('parsePackageList refuses a list with %s', (_, value) => {
    expect(() => parse(value)).toThrow(expect.objectContaining({ code: 'pins_malformed' }))
  })
})

describe.runIf(DPKG.isMet)(DPKG.title('openDebianPackage'), () => {
  it('openDebianPackage gives the files that are to be taken, and no others', async () => {
    const { folder, pinned } = makePackage()
    const tree = await openDebianPackage(pinned, { folder, cache })
    const data = new TextEncoder().encode('hello')
    expect(tree).toEqual(new Map([['usr/bin/hello', { kind: 'file', mode: 0o755, data }]]))
  })

  it('openDebianPackage refuses a package with a changed byte, of another size, or not in the folder', async () => {
    const { folder, pinned } = makePackage()
    const open = (change: Partial<DebianPackage>) =>
      openDebianPackage({ ...pinned, ...change }, { folder, cache })
    await expect(open({ sha256: '1'.repeat(64) })).rejects.toMatchObject({
      code: 'package_altered',
    })
    await expect(open({ size: pinned.size + 1 })).rejects.toMatchObject({ code: 'package_altered' })
    await expect(open({ version: '3' })).rejects.toMatchObject({ code: 'package_unavailable' })
  })

  it('openDebianPackage refuses a package that lacks a file that is to be taken', async () => {
    const { folder, pinned } = makePackage()
    const opening = openDebianPackage(
      { ...pinned, take: ['usr/bin/*', 'usr/lib/*.so'] },
      { folder, cache },
    )
    await expect(opening).rejects.toMatchObject({
      code: 'package_incomplete',
      message: 'hello has no file usr/lib/*.so',
    })
  })
})
