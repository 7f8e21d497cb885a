import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { layOutApplication } from '#enclave/image/boot-parts.ts'
import { packRamdisk } from '#enclave/image/cpio.ts'
import { measureParts } from '#enclave/image/eif.ts'
import { type FileTree, textFile } from '#enclave/image/file-tree.ts'
import { writeSettings } from '#enclave/image/settings.ts'
import { readTrackedSources } from '#enclave/image/tracked-files.ts'
import { listLoadedFiles } from '../../house/import-rules.ts'

const root = join(import.meta.dirname, '../../..')

const SETTINGS = {
  chainId: 1,
  contract: `0x${'ab'.repeat(20)}`,
  isDevelopment: false,
  limits: {},
  providers: [],
  cas: new Uint8Array(),
}

/** PCR2 of an image whose application has these of our files. */
function measure(sources: FileTree, settings = SETTINGS): string {
  const application = layOutApplication({
    sources,
    dependencies: new Map([['package.json', textFile('{}')]]),
    node: textFile('node', 0o755),
    system: new Map([['bin/busybox', textFile('busybox', 0o755)]]),
    settings: writeSettings(settings),
    init: textFile('init', 0o755),
  })
  const ramdisks = [Uint8Array.of(1), packRamdisk(application).bytes]
  const { pcr2 } = measureParts({ kernel: Uint8Array.of(2), cmdline: 'c', ramdisks })
  return Buffer.from(pcr2).toString('hex')
}

describe('the measured sources', () => {
  it('the measured sources are what the verifier imports, and all code of enclave/ but the image builder', async () => {
    const { files, commit } = await readTrackedSources(root)
    expect([...files.keys()]).toEqual(listLoadedFiles(root, 'enclave/main.ts'))
    expect(commit).toMatch(/^[0-9a-f]{40}$/)
    const code = readdirSync(join(root, 'enclave'), { recursive: true, encoding: 'utf8' })
      .map((path) => `enclave/${path}`)
      .filter((path) => path.endsWith('.ts') && !path.startsWith('enclave/image/'))
    expect([...files.keys()].filter((path) => path.startsWith('enclave/'))).toEqual(code.toSorted())
  })

  it('PCR2 changes with a byte, a name, a mode, a new file and a setting', () => {
    const path = 'enclave/main.ts'
    const files: FileTree = new Map([
      [path, textFile('main')],
      ['enclave/log.ts', textFile('log')],
    ])
    const without = new Map([...files].filter(([name]) => name !== path))
    const values = [
      measure(files),
      measure(new Map(files).set(path, textFile('maim'))),
      measure(new Map(without).set('enclave/moon.ts', textFile('main'))),
      measure(new Map(without).set(path, textFile('main', 0o755))),
      measure(new Map(files).set('enclave/new.ts', textFile(''))),
      measure(files, { ...SETTINGS, chainId: 2 }),
      measure(files, { ...SETTINGS, isDevelopment: true }),
    ]
    expect(new Set(values).size).toBe(values.length)
  })
})
