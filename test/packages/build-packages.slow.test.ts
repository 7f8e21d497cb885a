import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { gunzipSync, gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { FileTree } from '#enclave/image/file-tree.ts'
import { decodeTar } from '#enclave/image/tar.ts'
import { buildPackages, type PackageReport } from '#packages/build-packages.ts'
import { PACKAGES } from '#packages/contents.ts'
import { digestsOf } from '#packages/provenance.ts'

const ROOT = join(import.meta.dirname, '../..')
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
const names = PACKAGES.map(({ name }) => name)

const temporary = mkdtempSync(join(tmpdir(), 'affidavit-packages-'))
const here = join(temporary, 'here')
const there = join(temporary, 'there')
const elsewhere = join(temporary, 'elsewhere')
let report: PackageReport

const tarball = (folder: string, name: string) =>
  readFileSync(join(folder, `${name}-${version}.tgz`))
const unpack = (name: string): FileTree => decodeTar(gunzipSync(tarball(here, name)))
const textOf = (files: FileTree, path: string) => {
  const entry = files.get(`package/${path}`)
  return entry?.kind === 'file' ? Buffer.from(entry.data).toString('utf8') : ''
}
const readJson = (name: string, kind: string) =>
  JSON.parse(readFileSync(join(here, `${name}-${version}.${kind}.json`), 'utf8'))

/** The sources of this checkout in another folder: the same commit wherever that is. */
function copySources(folder: string): void {
  const date = '2026-01-01T00:00:00Z'
  const env = { ...process.env, GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date }
  const git = (cwd: string, ...words: readonly string[]) =>
    execFileSync('git', words, { cwd, env, encoding: 'utf8' })
  const files = git(ROOT, 'ls-files', '-z', '--cached', '--others', '--exclude-standard')
  for (const file of files
    .split('\0')
    .filter((path) => path !== '' && !/^(test|docs)\//.test(path))) {
    mkdirSync(dirname(join(folder, file)), { recursive: true })
    cpSync(join(ROOT, file), join(folder, file))
  }
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  git(folder, 'init', '--quiet')
  git(folder, 'add', '--all', '--', '.', ':!node_modules')
  const author = ['-c', 'user.name=Test', '-c', 'user.email=test@localhost']
  git(folder, ...author, '-c', 'commit.gpgSign=false', 'commit', '--quiet', '--message', 'copy')
}

beforeAll(async () => {
  report = await buildPackages(ROOT, here)
})
afterAll(() => rmSync(temporary, { recursive: true, force: true }))

describe('npm run package', () => {
  it('npm run package gives the same bytes from the same commit in another folder', () => {
    for (const [folder, output] of [
      ['deeper/checkout', there],
      ['other', elsewhere],
    ] as const) {
      const sources = join(temporary, folder)
      mkdirSync(sources, { recursive: true })
      copySources(sources)
      // In a process of its own, with that folder's modules, as another builder would.
      const main = join(sources, 'packages/main.ts')
      execFileSync(process.execPath, [main, '--output', output], { cwd: tmpdir(), stdio: 'pipe' })
    }
    for (const name of names)
      expect(digestsOf(tarball(there, name))).toEqual(digestsOf(tarball(elsewhere, name)))
    const statement = JSON.parse(
      readFileSync(join(there, `affidavit-${version}.provenance.json`), 'utf8'),
    )
    const { internalParameters, resolvedDependencies } = statement.predicate.buildDefinition
    expect(internalParameters.uncommitted).toEqual([])
    const files = decodeTar(gunzipSync(tarball(there, 'affidavit')))
    expect(JSON.parse(textOf(files, 'package.json')).gitHead).toBe(
      resolvedDependencies[0].digest.gitCommit,
    )
    // The page does not depend on the commit: its digest is that of the page that is served.
    expect(textOf(files, 'verify.html')).toBe(textOf(unpack('affidavit'), 'verify.html'))
  })

  it('npm run package replaces the files of an earlier version and nothing else', async () => {
    const folder = join(temporary, 'again')
    mkdirSync(folder)
    for (const file of ['affidavit-0.0.1.tgz', 'affidavit.tgz', 'notes.txt'])
      cpSync(join(ROOT, 'LICENSE'), join(folder, file))
    await buildPackages(ROOT, folder)
    expect(
      execFileSync('ls', [folder], { encoding: 'utf8' }).trim().split('\n').toSorted(),
    ).toEqual(
      [
        'SHA256SUMS',
        'affidavit.tgz',
        ...names.flatMap((name) =>
          ['cdx.json', 'provenance.json', 'tgz'].map((kind) => `${name}-${version}.${kind}`),
        ),
        'notes.txt',
      ].toSorted(),
    )
  })
})

describe.each(names)('the package %s', (name) => {
  it('the package has programs, types, licences and nothing else', () => {
    const files = [...unpack(name).keys()]
    expect(files.filter((file) => !MAY_BE_IN.test(file))).toEqual([])
    for (const file of ['package.json', 'README.md', 'LICENSE', 'NOTICE', `bin/${name}.js`])
      expect(files).toContain(`package/${file}`)
  })

  it('the package has no path of the build machine and no test in its files', () => {
    for (const [path, entry] of unpack(name)) {
      const text = entry.kind === 'file' ? Buffer.from(entry.data).toString('utf8') : ''
      for (const mark of [ROOT, temporary])
        expect(text.includes(mark) ? [path, mark] : null).toBeNull()
      if (!path.endsWith('.map')) continue
      const { sources, sourcesContent } = JSON.parse(text)
      expect(
        sources.filter(
          (source: string) =>
            !/^\.\.\/(attestation|audit|client|enclave\/protocol|node_modules|packages|src)\//.test(
              source,
            ),
        ),
      ).toEqual([])
      expect(sourcesContent).toHaveLength(sources.length)
    }
  })

  it('the package brings no server, database or chain client, in its files or beside them', () => {
    const { components } = readJson(name, 'cdx')
    const parts = components.map(({ purl }: { purl: string }) => purl.split('@')[0])
    expect(parts.length).toBeGreaterThan(5)
    for (const part of ['koa', 'kysely', 'pg', 'ethers', 'solc', 'sharp', 'koffi'])
      expect(parts).not.toContain(`pkg:npm/${part}`)
    expect(parts.filter((part: string) => /%40(electric-sql|foundry-rs)\//.test(part))).toEqual([])
  })

  it('the package names the licence of everything in its files', () => {
    const { components } = readJson(name, 'cdx')
    const bundled = components.filter(({ version }: { version?: string }) => version !== undefined)
    const notices = textOf(unpack(name), 'THIRD-PARTY-LICENSES.txt')
    for (const { group, name: short, version, hashes, licenses } of bundled) {
      const full = group === undefined ? short : `${group}/${short}`
      expect(notices).toContain(`\n${full} ${version} (`)
      expect(licenses).toHaveLength(1)
      expect(hashes[0].content).toMatch(/^[0-9a-f]{128}$/)
    }
    // Each has a text of its own below its name.
    expect(
      notices
        .split(/^-{80}$/m)
        .slice(1)
        .filter((part) => part.trim().split('\n').length < 5),
    ).toEqual([])
  })

  it('the package has a statement with the digests of the tarball and of every file in it', () => {
    const { subject, predicate } = readJson(name, 'provenance')
    const [first, ...others] = subject
    expect(first).toEqual({
      name: `${name}-${version}.tgz`,
      digest: digestsOf(tarball(here, name)),
    })
    const digests = [...unpack(name)].map(([path, entry]) => ({
      name: path,
      digest: entry.kind === 'file' ? digestsOf(entry.data) : null,
    }))
    expect(others).toEqual(digests)
    expect(predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit).toBe(report.commit)
    expect(report.commit).toMatch(/^[0-9a-f]{40}$/)
  })
})

const MAY_BE_IN =
  /^package\/(package\.json|README\.md|LICENSE|NOTICE|policy\.schema\.json|verify\.html|THIRD-PARTY-LICENSES\.txt|(bin|lib)\/[\w-]+\.js(\.map)?|types\/(attestation|client)\/[\w/-]+\.d\.ts)$/

it('the sums in SHA256SUMS hold', () => {
  expect(
    execFileSync('sha256sum', ['--check', 'SHA256SUMS'], { cwd: here, encoding: 'utf8' }),
  ).toMatch(/^(.*: OK\n){6}$/)
})

/**
 * As it is sent to a browser, together with the packages that it imports. The verifiers of
 * providers' evidence (TDX, SEV-SNP, NVIDIA, Sigstore) take 55,000 bytes: an application that bundles
 * with tree shaking or splitting has them only if it uses them. The readers of streams, which settle
 * what providers send, took 3,000; evidence of several calls in one file took 400.
 */
const LIBRARY_GZIP_BYTES_MAX = 139_000

it.each([
  ['attestation', LIBRARY_GZIP_BYTES_MAX],
  ['index', Number.POSITIVE_INFINITY],
])(
  'the module for browsers needs no part of Node and stays within its bound: %s',
  async (module, bytesMax) => {
    const folder = join(temporary, `unpacked-${module}`)
    mkdirSync(folder)
    execFileSync('tar', ['-xzf', join(here, `affidavit-${version}.tgz`), '-C', folder])
    const { outputFiles } = await build({
      entryPoints: [join(folder, `package/lib/${module}.js`)],
      nodePaths: [join(ROOT, 'node_modules')],
      bundle: true,
      minify: true,
      format: 'esm',
      platform: 'browser',
      write: false,
    })
    const bytes = outputFiles[0]?.contents ?? new Uint8Array()
    expect(bytes.length).toBeGreaterThan(10_000)
    const compressed = gzipSync(bytes, { level: 9 }).length
    console.log(`lib/${module}.js in a browser: ${compressed} bytes`)
    expect(compressed).toBeLessThanOrEqual(bytesMax)
  },
)
