import { gunzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { type FileTree, textFile } from '#enclave/image/file-tree.ts'
import { decodeTar } from '#enclave/image/tar.ts'
import { packTarball } from '#packages/tarball.ts'

const FILES: FileTree = new Map([
  ['lib/b.js', textFile('b'.repeat(513))],
  ['bin/a.js', textFile('#!/usr/bin/env node\n', 0o755)],
  ['package.json', textFile('{}')],
  ['empty', textFile('')],
])

describe('a tarball', () => {
  it('a tarball has the files below package/, with their modes', () => {
    const unpacked = decodeTar(gunzipSync(packTarball(FILES)))
    expect(
      [...unpacked].map(([path, entry]) => [path, entry.kind === 'file' && entry.mode]),
    ).toEqual([
      ['package/bin/a.js', 0o755],
      ['package/empty', 0o644],
      ['package/lib/b.js', 0o644],
      ['package/package.json', 0o644],
    ])
    const [entry] = [unpacked.get('package/lib/b.js')]
    expect(entry?.kind === 'file' && Buffer.from(entry.data).toString()).toBe('b'.repeat(513))
  })

  it('a tarball has the same bytes for every order of its files', () => {
    const reversed = new Map([...FILES].toReversed())
    expect(Buffer.compare(packTarball(reversed), packTarball(FILES))).toBe(0)
  })

  it("a tarball has no time except npm's, and no owner", () => {
    const header = gunzipSync(packTarball(FILES)).subarray(0, 512)
    const field = (at: number, length: number) =>
      header.toString('latin1', at, at + length).replace(/\0.*$/, '')
    expect(Number.parseInt(field(136, 12), 8)).toBe(Date.UTC(1985, 9, 26, 8, 15) / 1000)
    expect([field(108, 8), field(116, 8), field(265, 32), field(297, 32)]).toEqual([
      '0000000',
      '0000000',
      '',
      '',
    ])
  })

  it.each<[string, FileTree]>([
    ['a link', new Map([['a', { kind: 'link', target: 'b' }]])],
    ['a path of over 100 bytes', new Map([[`lib/${'ä'.repeat(50)}`, textFile('')]])],
  ])('packTarball refuses a tree with %s', (_, files) => {
    expect(() => packTarball(files)).toThrow(expect.objectContaining({ code: 'archive_malformed' }))
  })
})
