import { createHash } from 'node:crypto'
import { gunzipSync } from 'node:zlib'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compressGzip, encodeCpio } from '#enclave/image/cpio.ts'
import { type FileTree, type TreeEntry, TreeError, textFile } from '#enclave/image/file-tree.ts'
import { readCpio } from './read-cpio.ts'

const name = fc
  .string({ unit: 'grapheme', minLength: 1, maxLength: 8 })
  .filter((text) => !/[/\0]|^\.\.?$/.test(text))
const path = fc.array(name, { minLength: 1, maxLength: 3 }).map((parts) => parts.join('/'))
const file = fc.record({
  kind: fc.constant('file' as const),
  mode: fc.constantFrom(0o644, 0o755),
  data: fc.uint8Array({ maxLength: 40 }),
})
/** Trees in which no file stands where another path needs a directory. */
const tree = fc
  .array(fc.tuple(path, file), { maxLength: 12 })
  .map((entries) =>
    entries.filter(
      ([one]) => !entries.some(([other]) => other !== one && other.startsWith(`${one}/`)),
    ),
  )
  .map((entries) => new Map<string, TreeEntry>(entries))

describe('encodeCpio', () => {
  it('encodeCpio keeps every file, its bytes and its mode, in whatever order the tree was made', () => {
    fc.assert(
      fc.property(tree, (given) => {
        const files = readCpio(encodeCpio(given)).filter(
          ({ mode }) => (mode & 0o170000) === 0o100000,
        )
        const read = new Map(
          files.map(({ path, mode, data }) => [path, { kind: 'file', mode: mode & 0o7777, data }]),
        )
        expect(read).toEqual(given)
        expect(encodeCpio(new Map([...given].reverse()))).toEqual(encodeCpio(given))
      }),
    )
  })

  it('encodeCpio puts directories before their contents, by the bytes of paths, with owner and time 0', () => {
    const given: FileTree = new Map([
      ['b/ä', textFile('1')],
      ['b.c', textFile('2')],
      ['b/z', textFile('3')],
      ['a', { kind: 'link', target: 'b.c' }],
      ['dev/console', { kind: 'device', mode: 0o600, major: 5, minor: 1 }],
    ])
    const entries = readCpio(encodeCpio(given))
    expect(entries.map(({ path, mode }) => [path, mode.toString(8)])).toEqual([
      ['a', '120777'],
      ['b', '40755'],
      ['b.c', '100644'],
      ['b/z', '100644'],
      ['b/ä', '100644'],
      ['dev', '40755'],
      ['dev/console', '20600'],
    ])
    expect(entries.map(({ inode }) => inode)).toEqual([1, 2, 3, 4, 5, 6, 7])
    expect(entries.every(({ owner, time }) => owner.join() === '0,0' && time === 0)).toBe(true)
    expect(entries.at(-1)?.device).toEqual([5, 1])
    expect(Buffer.from(entries[0]?.data ?? []).toString()).toBe('b.c')
  })

  it.each(['/a', 'a/', 'a//b', '../a', 'a/./b', '', 'a\0b'])(
    'encodeCpio refuses the path %j',
    (given) => {
      expect(() => encodeCpio(new Map([[given, textFile('')]]))).toThrow(TreeError)
    },
  )

  it('encodeCpio refuses a path of 4,096 bytes, a mode beyond permissions, and a file below a file', () => {
    expect(() => encodeCpio(new Map([['a'.repeat(4096), textFile('')]]))).toThrow(TreeError)
    expect(() => encodeCpio(new Map([['a', textFile('', 0o100644)]]))).toThrow(TreeError)
    expect(() =>
      encodeCpio(
        new Map([
          ['a', textFile('')],
          ['a/b', textFile('')],
        ]),
      ),
    ).toThrow(TreeError)
  })
})

describe('compressGzip', () => {
  it('compressGzip gives the same fixed bytes wherever it runs, which gunzip turns back', () => {
    const text = Array.from({ length: 20_000 }, (_, index) => `${(index * 7919) % 10_007},`).join(
      '',
    )
    const bytes = compressGzip(new TextEncoder().encode(text))
    expect(gunzipSync(bytes).toString()).toBe(text)
    expect(Buffer.from(bytes.subarray(0, 10)).toString('hex')).toBe('1f8b08000000000000ff')
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(
      'e2f8007f70af6119b6bf4aeebda52fa0035a6c42402b636f305389acc755f0d5',
    )
  })
})
