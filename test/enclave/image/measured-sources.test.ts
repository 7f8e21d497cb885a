import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { packRamdisk } from '../../../enclave/image/compressed-ramdisk.ts'
import { encodeCpio } from '../../../enclave/image/cpio.ts'
import { measureParts } from '../../../enclave/image/eif.ts'
import { type FileTree, type TreeEntry, textFile } from '../../../enclave/image/file-tree.ts'
import { layOutApplication } from '../../../enclave/image/ramdisks.ts'
import { writeSettings } from '../../../enclave/image/settings-files.ts'
import { readTrackedSources } from '../../../enclave/image/tracked-files.ts'

const sources = await readTrackedSources(join(import.meta.dirname, '../../..'))
const SETTINGS = {
  chainId: 1,
  contract: `0x${'ab'.repeat(20)}`,
  isDevelopment: false,
  providers: [],
  cas: new Uint8Array(),
}

/** An application with all of our files; Node.js and the packages do not matter here. */
const application = (files: FileTree, settings = SETTINGS): FileTree =>
  layOutApplication({
    sources: files,
    dependencies: new Map([['package.json', textFile('{}')]]),
    node: textFile('node', 0o755),
    system: new Map([['bin/busybox', textFile('busybox', 0o755)]]),
    settings: writeSettings(settings),
    init: textFile('init', 0o755),
  })
/** What PCR2 is over, before it is compressed: gunzip gives it back, so that other bytes cannot be compressed to the same. */
const digest = (files: FileTree) =>
  createHash('sha384')
    .update(encodeCpio(application(files)))
    .digest('hex')
const measure = (tree: FileTree) => {
  const ramdisks = [Uint8Array.of(1), packRamdisk(tree).bytes]
  return Buffer.from(measureParts({ kernel: Uint8Array.of(2), cmdline: 'c', ramdisks }).pcr2).toString('hex')
}
const flip = (entry: TreeEntry): TreeEntry => {
  if (entry.kind !== 'file') throw new Error('expected a file')
  const data =
    entry.data.length === 0 ? Uint8Array.of(0) : entry.data.map((byte, at) => (at === 0 ? byte ^ 1 : byte))
  return { ...entry, data }
}

describe('the measured sources', () => {
  it('are all tracked files of attestation/ and enclave/, the builder and the init scripts among them', () => {
    const paths = [...sources.files.keys()]
    expect(paths).toContain('enclave/main.ts')
    expect(paths).toContain('attestation/README.md')
    expect(paths).toContain('enclave/image/packages.json')
    expect(paths.filter((path) => !/^(attestation|enclave)\//.test(path))).toEqual([])
    expect(sources.commit).toMatch(/^[0-9a-f]{40}$/)
  })

  it('change what PCR2 is over with any one byte of any one file', { timeout: 120_000 }, () => {
    const before = digest(sources.files)
    for (const [path, entry] of sources.files)
      expect(digest(new Map(sources.files).set(path, flip(entry))), path).not.toBe(before)
  })

  it('change PCR2 itself with a byte, a name, a mode, a new file and a setting', { timeout: 120_000 }, () => {
    const [path = '', entry] = [...sources.files].find(([name]) => name === 'enclave/main.ts') ?? []
    if (entry?.kind !== 'file') throw new Error('expected enclave/main.ts')
    const without = new Map([...sources.files].filter(([name]) => name !== path))
    const trees = [
      application(sources.files),
      application(new Map(sources.files).set(path, flip(entry))),
      application(new Map(without).set('enclave/moon.ts', entry)),
      application(new Map(without).set(path, { ...entry, mode: 0o755 })),
      application(new Map(sources.files).set('enclave/new.ts', textFile(''))),
      application(sources.files, { ...SETTINGS, chainId: 2 }),
      application(sources.files, { ...SETTINGS, isDevelopment: true }),
    ]
    expect(new Set(trees.map(measure)).size).toBe(trees.length)
  })
})
