import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { formatNotices, listBundledPackages } from '#packages/bundled-packages.ts'
import { folderOfFile } from '../support/folders.ts'

const root = folderOfFile()

function write(path: string, text: string): void {
  mkdirSync(join(root, path, '..'), { recursive: true })
  writeFileSync(join(root, path), text)
}

const digest = Buffer.alloc(64, 7)
write(
  'package-lock.json',
  JSON.stringify({
    packages: { 'node_modules/b': { integrity: `sha512-${digest.toString('base64')}` } },
  }),
)
write('node_modules/b/package.json', '{"name":"b","version":"1.0.0","license":"MIT"}')
write('node_modules/b/LICENSE.md', 'Of b\r\nand others\n')
write('node_modules/b/licenses.js', 'no licence')
write(
  'node_modules/b/node_modules/@a/c/package.json',
  '{"name":"@a/c","version":"2.0.0","license":"(MIT OR ISC)"}',
)
write('node_modules/b/node_modules/@a/c/LICENCE', 'Of c')
write('node_modules/b/node_modules/@a/c/NOTICE', 'Noted')
write('node_modules/d/package.json', '{"name":"d","version":"1.0.0"}')

describe('the packages in the files of ours', () => {
  it('the bundled packages are the packages of the sources, with licences and digests', async () => {
    const sources = [
      'src/x.ts',
      'node_modules/b/x.js',
      'node_modules/b/node_modules/@a/c/lib/y.js',
      'node_modules/b/z/y.js',
    ]
    const packages = await listBundledPackages(root, sources)
    expect(packages).toEqual([
      {
        name: '@a/c',
        version: '2.0.0',
        license: '(MIT OR ISC)',
        sha512: null,
        notices: ['Of c', 'Noted'],
      },
      {
        name: 'b',
        version: '1.0.0',
        license: 'MIT',
        sha512: digest.toString('hex'),
        notices: ['Of b\nand others'],
      },
    ])
    expect(formatNotices(packages)).toMatch(
      /@a\/c 2\.0\.0 \(\(MIT OR ISC\)\)\n\nOf c\n\nNoted\n[\s\S]*b 1\.0\.0 \(MIT\)\n\nOf b\nand others\n$/,
    )
  })

  it('a bundled package that names no licence is refused', async () => {
    await expect(listBundledPackages(root, ['node_modules/d/x.js'])).rejects.toMatchObject({
      code: 'package_incomplete',
      message: 'node_modules/d: expected a name, a version and a licence',
    })
  })
})
