import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { bundlePackage } from '#packages/bundle.ts'
import { PACKAGES, type PackageContents } from '#packages/contents.ts'
import { rangesOf, writeManifest } from '#packages/manifest.ts'
import { folderOfFile } from '../support/folders.ts'

const root = folderOfFile()

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true })
  writeFileSync(join(root, path), text)
}

write('node_modules/inside/package.json', '{"name":"inside","main":"index.cjs"}')
write('node_modules/inside/index.cjs', "exports.name = require('node:os').platform()")
write('pure.ts', "import { beside } from 'beside/part'\nexport const pure: string = beside")
write('main.ts', "#!/usr/bin/env node\nimport { name } from 'inside'\nimport './pure.ts'\nname")
write('reading.ts', "import { readFileSync } from 'node:fs'\nexport const read = readFileSync")
write('broken.ts', 'export const = 1')
write('trying.ts', "try { require('somewhere') } catch {}\nimport 'beside'")

const contents = (more: Partial<PackageContents>): PackageContents => ({
  name: 'tool',
  description: '',
  keywords: [],
  library: [{ subpath: '.', module: 'pure.ts' }],
  program: 'main.ts',
  readme: 'README.md',
  files: { 'form.json': 'some/form.json' },
  bringsVerifier: true,
  dependencies: { beside: {} },
  ...more,
})

/** What of our own may be in the package `affidavit`: no gateway, and of src/ only this. */
const CHECKER_PARTS = [
  'attestation/',
  'audit/',
  'client/',
  // Recovers signers; an audit would take ten times as long without it.
  'enclave/protocol/recover-point.ts',
  'packages/affidavit/',
  'src/cli/',
  // The content codings of what the proxy passes on.
  'src/runtime/codings.ts',
  // Settings from the environment, and what they need.
  'src/runtime/fields.ts',
  'src/runtime/folder-lock.ts',
  'src/runtime/read-settings.ts',
  'src/runtime/secret-file.ts',
  'src/runtime/starting.ts',
  'src/runtime/version.ts',
]

describe('the JavaScript of a package', () => {
  it('the package affidavit holds no code of the gateway, nor the messages of zod in other languages', async () => {
    const affidavit = PACKAGES.find(({ name }) => name === 'affidavit')
    if (affidavit === undefined) throw new Error('expected the package affidavit')
    const { sources } = await bundlePackage(join(import.meta.dirname, '../..'), affidavit)
    const own = sources.filter((path) => !path.startsWith('node_modules/'))
    const isOf = (path: string) => (part: string) => path.startsWith(part)
    expect(own.filter((path) => !CHECKER_PARTS.some(isOf(path)))).toEqual([])
    expect(CHECKER_PARTS.filter((part) => !own.some((path) => isOf(path)(part)))).toEqual([])
    expect(sources.filter((path) => path.includes('/zod/v4/locales/'))).toEqual([
      'node_modules/zod/v4/locales/en.js',
      'node_modules/zod/v4/locales/index.js',
    ])
  })

  it('a package has a library and a program that bundle all that is not installed beside them', async () => {
    const bundle = await bundlePackage(root, contents({}))
    expect([...bundle.files.keys()].toSorted()).toEqual(
      ['bin/tool.js', 'bin/tool.js.map', 'lib/index.js', 'lib/index.js.map'].toSorted(),
    )
    expect(bundle).toMatchObject({
      program: 'bin/tool.js',
      imported: ['beside'],
      sources: ['main.ts', 'node_modules/inside/index.cjs', 'pure.ts'],
      exports: new Map([['.', 'lib/index.js']]),
    })
    const program = bundle.files.get('bin/tool.js')
    expect(program).toMatchObject({ kind: 'file', mode: 0o755 })
    const text = program?.kind === 'file' ? Buffer.from(program.data).toString() : ''
    expect(text.startsWith('#!/usr/bin/env node\n')).toBe(true)
    expect(text).not.toContain(root)
  })

  it.each<[string, Partial<PackageContents>, string, RegExp]>([
    [
      'a dependency that nothing imports',
      { dependencies: { beside: {}, left: {} } },
      'closure_incomplete',
      /^tool: left is among the dependencies and not imported$/,
    ],
    [
      'a package that is neither in it nor beside it',
      { program: 'trying.ts' },
      'closure_incomplete',
      /^tool: somewhere is imported and not among the dependencies$/,
    ],
    [
      'a library that imports something of Node',
      { library: [{ subpath: '.', module: 'reading.ts' }] },
      'command_failed',
      /node:fs/,
    ],
    ['a source that is none', { program: 'broken.ts' }, 'command_failed', /broken\.ts/],
  ])('bundlePackage refuses contents with %s', async (_, more, code, message) => {
    await expect(bundlePackage(root, contents(more))).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
    })
  })
})

describe('package.json', () => {
  const project = {
    version: '1.2.3',
    license: 'MIT',
    dependencies: { beside: '^1.0.0' },
    optionalDependencies: { extra: '^2.0.0' },
  }

  it("package.json has the repository's ranges, given ranges, and optional dependencies as peers", () => {
    const dependencies = { other: { range: '~3.0.0' }, beside: {}, extra: { isOptional: true } }
    const layout = {
      commit: 'ab'.repeat(20),
      program: 'bin/tool.js',
      exports: [{ subpath: '.', file: 'lib/index.js', types: 'types/index.d.ts' }],
    }
    const manifest = JSON.parse(writeManifest(contents({ dependencies }), project, layout))
    expect(manifest).toMatchObject({
      name: 'tool',
      version: '1.2.3',
      license: 'MIT',
      bin: { tool: 'bin/tool.js' },
      exports: {
        '.': { types: './types/index.d.ts', default: './lib/index.js' },
        './form.json': './form.json',
        './verify.html': './verify.html',
      },
      gitHead: layout.commit,
      dependencies: { beside: '^1.0.0', other: '~3.0.0' },
      peerDependencies: { extra: '^2.0.0' },
      peerDependenciesMeta: { extra: { optional: true } },
    })
    // The first that fits is taken: types go before what runs.
    expect(Object.keys(manifest.exports['.'])).toEqual(['types', 'default'])
  })

  it('a dependency without a range is refused', () => {
    expect(() => rangesOf({ dependencies: { left: {} } }, project, { isOptional: false })).toThrow(
      expect.objectContaining({ code: 'closure_incomplete' }),
    )
  })
})
