import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { type FileTree, mergeTrees, textFile } from '#enclave/image/file-tree.ts'
import { countBytes } from '#enclave/image/open-parts.ts'
import { runCommand } from '#enclave/image/run-command.ts'
import { compareWithCommit } from '#enclave/image/tracked-files.ts'
import { bundleSaved } from '#src/web/bundle.ts'
import { renderVerifier } from '#src/web/page.ts'
import { bundlePackage, type PackageBundle } from './bundle.ts'
import { formatNotices, listBundledPackages } from './bundled-packages.ts'
import { PACKAGES, type PackageContents, VERIFIER_FILE } from './contents.ts'
import { type Declarations, declareModules } from './declarations.ts'
import { isSameLock } from './lock-file.ts'
import { type Project, rangesOf, readProject, writeManifest } from './manifest.ts'
import {
  type BuildFacts,
  type BuiltPackage,
  digestsOf,
  writeProvenance,
  writeSbom,
} from './provenance.ts'
import { packTarball } from './tarball.ts'

export type PackageReport = {
  readonly packages: readonly {
    readonly file: string
    readonly bytes: number
    /** Total size of all files after npm has unpacked them. */
    readonly unpackedBytes: number
    readonly sha256: string
  }[]
  readonly commit: string
  /** Sources that differ from the commit. */
  readonly uncommitted: readonly string[]
}

/**
 * Builds all packages of `root` into the folder `output`, in place of earlier packages. `root` is a
 * git checkout with its npm packages. Each package gets a tarball, an SBOM and a provenance
 * statement. SHA256SUMS covers all of these files. The tarballs' bytes depend only on the commit,
 * not on the machine, the folder or the time. Throws BuildError.
 */
export async function buildPackages(root: string, output: string): Promise<PackageReport> {
  const project = await readProject(root)
  const modules = PACKAGES.flatMap(({ library }) => library.map(({ module }) => module))
  const declarations = await declareModules(root, modules)
  const verifier = await bundleSaved()
  const bundles = await Promise.all(
    PACKAGES.map(async (contents) => ({ contents, bundle: await bundlePackage(root, contents) })),
  )
  const sources = [...verifier.sources, ...bundles.flatMap(({ bundle }) => bundle.sources)]
  const facts = await readFacts(root, [...new Set(sources)])
  const commit = facts.uncommitted.length === 0 ? facts.commit : null
  const packages = await Promise.all(
    bundles.map((made) => buildPackage(root, { ...made, project, declarations, verifier, commit })),
  )
  await writePackages(output, packages, facts)
  return {
    packages: packages.map(({ file, tarball, files }) => ({
      file,
      bytes: tarball.length,
      unpackedBytes: countBytes(files),
      sha256: digestsOf(tarball).sha256,
    })),
    commit: facts.commit,
    uncommitted: facts.uncommitted,
  }
}

async function buildPackage(
  root: string,
  made: {
    readonly contents: PackageContents
    readonly bundle: PackageBundle
    readonly project: Project
    readonly declarations: Declarations
    readonly verifier: Awaited<ReturnType<typeof bundleSaved>>
    readonly commit: string | null
  },
): Promise<BuiltPackage> {
  const { contents, bundle, project, declarations, verifier, commit } = made
  const bundled = await listBundledPackages(root, [
    ...bundle.sources,
    ...(contents.bringsVerifier ? verifier.sources : []),
  ])
  const layout = {
    commit,
    program: bundle.program,
    exports: contents.library.map(({ subpath, module }) => ({
      subpath,
      file: bundle.exports.get(subpath) ?? '',
      types: declarations.fileOf.get(module) ?? '',
    })),
  }
  const texts = new Map([
    ['package.json', textFile(writeManifest(contents, project, layout))],
    ['README.md', textFile(await readText(root, contents.readme))],
    ...(await Promise.all(
      Object.entries(contents.files).map(
        async ([path, source]) => [path, textFile(await readText(root, source))] as const,
      ),
    )),
    ...(contents.bringsVerifier
      ? [[VERIFIER_FILE, textFile(renderVerifier(verifier.saved))] as const]
      : []),
    ['LICENSE', textFile(await readText(root, 'LICENSE'))],
    ['NOTICE', textFile(await readText(root, 'packages/NOTICE'))],
    ['THIRD-PARTY-LICENSES.txt', textFile(formatNotices(bundled))],
  ])
  const types: FileTree = contents.library.length === 0 ? new Map() : declarations.files
  const files = mergeTrees(bundle.files, types, texts)
  const { name } = contents
  return {
    name,
    version: project.version,
    license: project.license,
    file: `${name}-${project.version}.tgz`,
    tarball: packTarball(files),
    files,
    bundled,
    dependencies: rangesOf(contents, project, { isOptional: false }),
  }
}

async function readText(root: string, path: string): Promise<string> {
  return (await readFile(join(root, path), 'utf8')).replaceAll('\r\n', '\n')
}

const LOCK = 'package-lock.json'

/** The sources of the build itself, in addition to the sources in the packages. */
export const BUILT_BY = [
  'packages',
  'enclave/image',
  ':(exclude,glob)enclave/image/**/*.md',
  'src/web',
  'attestation',
  'client',
  'LICENSE',
  'package.json',
  LOCK,
  'tsconfig.json',
]

async function readFacts(root: string, sources: readonly string[]): Promise<BuildFacts> {
  const own = sources.filter((path) => !path.includes('node_modules/'))
  const [{ commit, committedAtMs, uncommitted }, ...tools] = await Promise.all([
    compareWithCommit(root, own, BUILT_BY),
    ...TOOLS.map(async (name) => [name, await readVersion(root, name)] as const),
  ])
  const isSame = uncommitted.includes(LOCK) && (await hasCommittedLock(root))
  return {
    commit,
    committedAtMs,
    uncommitted: isSame ? uncommitted.filter((path) => path !== LOCK) : uncommitted,
    tools: { node: process.versions.node, ...Object.fromEntries(tools) },
  }
}

async function hasCommittedLock(root: string): Promise<boolean> {
  const words = ['show', `HEAD:./${LOCK}`]
  const committed = await runCommand({ file: 'git', arguments: words, folder: root })
  const { platform, arch } = process
  const machine = { os: platform, cpu: arch }
  return isSameLock(committed.toString('utf8'), await readText(root, LOCK), machine)
}

/** npm packages whose version changes the result of the build. */
const TOOLS = ['esbuild', 'fflate', 'typescript']

const versionSchema = z.object({ version: z.string() })

async function readVersion(root: string, name: string): Promise<string> {
  const text = await readFile(join(root, 'node_modules', name, 'package.json'), 'utf8')
  return versionSchema.parse(JSON.parse(text)).version
}

async function writePackages(
  output: string,
  packages: readonly BuiltPackage[],
  facts: BuildFacts,
): Promise<void> {
  const files = new Map<string, Uint8Array>()
  for (const built of packages) {
    const base = built.file.replace(/\.tgz$/, '')
    files.set(built.file, built.tarball)
    files.set(`${base}.cdx.json`, jsonBytes(writeSbom(built, facts)))
    files.set(`${base}.provenance.json`, jsonBytes(writeProvenance(built, facts)))
  }
  const sums = [...files].map(([name, bytes]) => `${digestsOf(bytes).sha256}  ${name}\n`)
  await mkdir(output, { recursive: true })
  // Removes the files of earlier versions, because the new SHA256SUMS does not list them. All other
  // files may belong to the user.
  for (const name of await readdir(output))
    if (WRITTEN.test(name)) await rm(join(output, name), { force: true })
  for (const [name, bytes] of files) await writeFile(join(output, name), bytes)
  await writeFile(join(output, 'SHA256SUMS'), sums.join(''))
}

const WRITTEN = /^affidavit(-node)?-\d.*\.(tgz|cdx\.json|provenance\.json)$/

function jsonBytes(value: object): Uint8Array {
  return new TextEncoder().encode(`${JSON.stringify(value, null, 2)}\n`)
}
