import { execFileSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { BuildError } from '#enclave/image/build-error.ts'
import { decodeTar } from '#enclave/image/tar.ts'
import { folderOfFile } from '../../support/folders.ts'

const folder = folderOfFile()

const LONG = `${'deep/'.repeat(30)}${'long-name-'.repeat(12)}.txt`
const put = (path: string, data: string, mode: number) => {
  mkdirSync(dirname(join(folder, path)), { recursive: true })
  writeFileSync(join(folder, path), data, { mode })
}
put('a.txt', 'text', 0o600)
put('bin/run', '#!', 0o755)
put(LONG, 'far away', 0o644)
symlinkSync('../a.txt', join(folder, 'bin/link'))
execFileSync('ln', [join(folder, 'a.txt'), join(folder, 'twin.txt')])

const pack = (format: string) =>
  new Uint8Array(
    execFileSync(
      'tar',
      ['--create', `--format=${format}`, '--sort=name', './a.txt', './bin', './deep', './twin.txt'],
      {
        cwd: folder,
      },
    ),
  )
const file = (text: string, mode = 0o644) => ({
  kind: 'file',
  mode,
  data: new TextEncoder().encode(text),
})

describe('decodeTar', () => {
  it.each(['gnu', 'pax'])(
    'decodeTar reads files, links and long names as GNU tar writes them in the format %s',
    (format) => {
      expect(Object.fromEntries(decodeTar(pack(format)))).toEqual({
        'a.txt': file('text'),
        'bin/link': { kind: 'link', target: '../a.txt' },
        'bin/run': file('#!', 0o755),
        [LONG]: file('far away'),
        'twin.txt': file('text'),
      })
    },
  )

  it('decodeTar refuses an archive that ends within an entry, and one with a changed header', () => {
    const archive = pack('gnu')
    expect(() => decodeTar(archive.subarray(0, 514))).toThrow(BuildError)
    expect(() => decodeTar(archive.map((byte, at) => (at === 3 ? byte ^ 1 : byte)))).toThrow(
      'checksum',
    )
  })

  it('decodeTar throws nothing but its own error, whatever it is given', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 2_000 }), (bytes) => {
        try {
          decodeTar(bytes)
        } catch (error) {
          expect(error).toBeInstanceOf(BuildError)
        }
      }),
    )
  })
})
